"""The console with a large cluster: page times, and the cost for the broker with ten open browsers."""
