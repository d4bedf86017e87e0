"""A handler's questions to the user or the model: one handler for both eras."""
