"""Metrics and log lines of the servers.

    parts of a server ── read for each request ──► families ──► GET /metrics

The hot paths only add to plain counters; everything else happens when somebody asks for the page.

Modules in reading order:

    families    metric families: name, help, labelled values, and their text format
    page        the HTTP page `GET /metrics`
    log_lines   log records as text or as JSON
    settings    address of the page, and RocketMQ's names for it
"""
