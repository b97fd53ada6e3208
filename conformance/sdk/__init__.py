"""The official clients of RocketMQ 5, which use gRPC, with PocketMQ and with Apache's proxy: the same acts, the same outcome.

python_sdk.py   the acts with the official Python client, in a process of its own
Sdk.java        the same with the official Java client
apaches.py      Apache's proxy, and the jars of the Java client
against.py      the acts as scenarios of the suite
"""
