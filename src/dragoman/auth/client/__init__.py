"""The client of authorization: how a program becomes somebody whom a server lets in."""
