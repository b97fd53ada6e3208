"""The client: an async core and a blocking face with the same words."""
