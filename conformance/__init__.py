"""PocketMQ beside the real Apache RocketMQ: `make conformance` runs every check and tells which hold.

    apache.py         a real broker, started on a store of our choice
    broker_line.py    a connection to it, made of PocketMQ's own protocol
    report.py         what was checked, on the screen and in docs/compatibility.md
    store/            stores written by one side and read by the other

Needs Java 17 and Maven. Without them every check is skipped, and the table says why.
"""
