"""HTTP routes of services and MCP servers: `@app.route`, and how a request to one becomes a call."""
