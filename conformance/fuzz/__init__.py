"""Somebody who does not keep to the protocol: what is sent to our servers and to our client is malformed, cut, repeated or random.

frames     requests and answers to begin with, and what is done to them
assault    connections that send such frames, by several tactics
servers    a broker and a name server in processes of their own; with accounts, nothing may change in them
hostile    a server that answers like this, and the client that has to live with it
"""
