"""Ready jobs. `archive` and `mirror` have packages of their own.

Modules in reading order:

    resending    settings and steps that backfill and replay share
    backfill     a range of topics again, into a topic or a lake
    replay       messages of a lake, dead letters or a topic, sent again
    quality      rows that keep a contract go on, the others become dead letters
    trace        the trace topic as events, timelines of messages, and latencies
    lag_report   lag of consumer groups over time
"""
