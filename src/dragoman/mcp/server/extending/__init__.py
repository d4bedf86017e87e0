"""The server's side of extensions: their functions, what these may use, their topics, and entries of other servers."""
