"""Tools for the files of a store that is not open: verify, dump, rebuild.

Modules in reading order:

    findings             what a check can find, and how severe it is
    verify               all checks
    log_check            checks the log
    queue_check          compares the consume queues with the log
    index_check          compares the key index with the log
    checked_index_file   checks one index file by itself
    folder_check         files that do not belong to a store, and how it was stopped
    message_fields       a stored message as plain fields
    dump                 prints messages
    rebuild              rebuilds consume queues and key index
"""
