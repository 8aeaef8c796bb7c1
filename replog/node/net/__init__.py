"""Listening and connecting: the server, and links to brokers and to the controller."""
