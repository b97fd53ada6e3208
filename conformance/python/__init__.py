"""Our Python client with Apache's brokers and with our own: one set of acts, the same for all.

    stage.py        where an act plays: a cluster, clients for it, and what was found wrong
    acts/           what is played: sending, consuming, filters, retries, delays, transactions, offsets, looking around
    against.py      the acts as scenarios of the suite: with each version of Apache, and with PocketMQ

`tests/test_conformance_python.py` plays the same acts with our broker in virtual time.
"""
