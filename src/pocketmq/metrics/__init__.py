"""Metrics and log formats of the servers.

    parts of a server ── read for each request ──► families ──► GET /metrics

The hot paths only add to plain counters; everything else happens when the page is requested.

Modules in reading order:

    families    metric families: name, help, labelled values, and their text format
    page        the HTTP page `GET /metrics`, its settings, and RocketMQ's names for them
    log_lines   log records as text or as JSON
"""
