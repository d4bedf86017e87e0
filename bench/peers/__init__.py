"""Today's peers, each in an environment of its own: the files beside this run under those interpreters, not ours."""
