"""`dragoman tools | tool | resources | read | prompts | prompt | discover | ping`: MCP at the terminal."""
