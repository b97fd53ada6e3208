"""Handlers, one file for each family of requests. Each family has a table: request code → handler."""
