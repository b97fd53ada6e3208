"""Requests to a broker, one class for each family of them."""
