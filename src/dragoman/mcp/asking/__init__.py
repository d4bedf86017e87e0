"""A handler's questions to the user, the model or the client: the same calls in both eras."""
