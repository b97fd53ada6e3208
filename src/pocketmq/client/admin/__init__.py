"""The administrator's client: queries and changes of a running cluster.

Modules in reading order:

    admin          AsyncAdmin and Admin: all operations in one class each
    targets        which brokers and name servers an operation asks
    topics         topics
    groups         consumer groups and their members
    offsets        offsets of groups: query, reset, clone
    lag            how far a group is behind, in messages and in time
    messages       messages by id, key, offset and time; traces; consuming one again
    dead_letters   dead letters: list, resend
    delays         delayed messages that are not due
    transactions   undecided transactions
    cluster        brokers, their statistics and settings
"""
