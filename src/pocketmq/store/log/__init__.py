"""The commit log.

Modules in reading order:

    segments         files of one size, addressed by one offset
    readable_log     bytes, records and store times by their offset in the log
    commit_log       the log: append, truncate, drop old files
    log_writer       writes a turn, on the loop or in a thread when the disk is slow
    flushing         syncs the log in a thread
    preparing        creates the next files and deletes old ones in a thread
    transient_pool   acknowledges from memory, writes behind
    log_scan         reads the log record by record
"""
