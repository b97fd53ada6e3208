"""The administrator's client: queries and changes of a running cluster.

Modules in reading order:

    admin          AsyncAdmin and Admin: all operations in one class each
    targets        the brokers and name servers of an operation; reading of queues
    topics         topics
    groups         consumer groups and their members
    offsets        offsets of groups: query, reset, clone
    lag            the lag of groups, in messages and in time
    messages       messages by id, key, offset and time; traces; repeated consumption
    dead_letters   dead letters: list, resend
    delays         delayed messages that are not due
    transactions   undecided transactions
    cluster        brokers and name servers, their statistics and settings
"""
