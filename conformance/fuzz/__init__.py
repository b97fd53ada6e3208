"""Peers that violate the protocol: they send malformed, cut, repeated or random bytes to our servers and our client.

frames     valid requests and answers, and how they are changed
assault    connections that send such frames in several ways
servers    a broker and a name server in processes of their own; with accounts, nothing may change in them
hostile    a server that sends such answers, and the client that must survive them
"""
