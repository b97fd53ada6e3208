"""The console beside a large cluster: how fast its pages are, and what it costs the broker while ten browsers watch."""
