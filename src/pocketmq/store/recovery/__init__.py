"""Opening a store after any kind of stop.

Modules in reading order:

    recovery         the order of recovery; cuts the log at the first bad record
    queue_recovery   brings the queues in line with the log
    queue_repair     rebuilds damaged entries while the store is in use
    resume_upkeep    keeps the resume file current while the store runs
"""
