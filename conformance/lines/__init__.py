"""A bad line between client and broker: bytes come late, twice or not at all, and connections are cut.

bad_line    the proxy, which stands between a client and the servers that it believes to talk to
crossings   messages that have to come through it: the Java client to our broker, our client to Apache's
"""
