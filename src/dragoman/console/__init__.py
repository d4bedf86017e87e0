"""What goes on in a server, for its operator: calls in flight, ended calls, series, errors, connections, and the page's
API."""
