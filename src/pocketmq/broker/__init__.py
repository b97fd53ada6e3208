"""The broker: takes messages, keeps them, and hands each group what it asks for.

A program: it stands on the protocol, the sockets and the store, and knows neither name server nor client code. Rules are
pure modules that are told what they need (the time, a subscription, a record); what waits is a coroutine.
"""
