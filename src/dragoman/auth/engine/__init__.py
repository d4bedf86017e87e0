"""The engine of an authorization server, without a socket: what the development server and the proxy share."""
