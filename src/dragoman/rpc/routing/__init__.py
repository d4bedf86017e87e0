"""HTTP routes of services and MCP servers: registers them (`@app.route`), and runs a request to one as a call."""
