"""Ready pipelines. `archive` and `mirror` have packages of their own.

Modules in reading order:

    resending    settings and steps that backfill and replay have in common
    backfill     copies a range of topics to a topic or a lake
    replay       sends messages of a lake, a topic or dead letters again
    quality      checks rows against a contract; bad rows become dead letters
    trace        the trace topic as events, timelines of messages, and latencies
    lag_report   lag of consumer groups over time
"""
