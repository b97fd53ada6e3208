"""What a client asks brokers, one method for each request: typed on both sides, failures raised as errors.

A target is a broker's name, meaning its master, or an address.
"""
