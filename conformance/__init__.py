"""PocketMQ beside the real Apache RocketMQ: `make conformance` runs every check and tells which hold.

    store/            stores written by one side and read by the other
    clients/          the Java client with our servers
    mqadmin/          the real mqadmin with our servers
    clusters/         servers of both kinds in one cluster

    apache.py         real servers, started on a store of our choice
    programs.py       our servers, the Java client and mqadmin, each in a process of its own
    printed.py        what the Java programs print, and when it is the same
    broker_line.py    a connection to a broker, made of PocketMQ's own protocol
    report.py         what was checked, on the screen and in docs/compatibility.md

Needs Java 17 and Maven. Without them every check is skipped, and the table says why.
"""
