"""What every broker's wire is made of."""
