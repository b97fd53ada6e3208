"""Compares PocketMQ with Apache RocketMQ: `make conformance` runs all checks and reports which pass.

    store/            stores written by one side and read by the other
    clients/          the Java client with our servers
    python/           our client with Apache's servers and with ours
    groups/           groups with Java and Python members
    pops/             groups of Java and Python members that pop
    guests/           clients of other languages with our servers
    security/         signed requests and TLS
    times/            how long things take, beside Apache
    mqadmin/          the real mqadmin with our servers
    cli/              our command line with Apache's servers
    clusters/         servers of both kinds in one cluster
    lines/            connections that are cut, delayed or damaged
    spark/            the Spark connector with Apache's servers
    java/             our own programs for the Java client

    parts.py          all of these, one line each
    running.py        scenarios side by side
    features.py       what users know by name, and which checks show it
    summary.py        the table of features
    page.py           docs/generated/compatibility.md, read and written table by table
    apache.py         real servers, started on a store of our choice
    programs.py       our servers, the Java client and mqadmin, each in a process of its own
    printed.py        what the Java programs print, and when it is the same
    broker_line.py    a connection to a broker, made of PocketMQ's own protocol
    java_programs.py  programs of java/, compiled and started
    report.py         what was checked, on the screen and as Markdown

Needs Java 17 and Maven; some parts need Go, Node or pip. If a program is missing, its checks are skipped and the table says why.
"""
