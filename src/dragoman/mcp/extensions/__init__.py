"""The extensions of MCP that come with this library, each a value for `Server(extensions=[...])` and a value for
`Client(extensions=[...])`. Neither the server nor the client knows any of them."""
