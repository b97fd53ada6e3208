"""A model of a disk with power loss. Tests use it through `pocketmq.testing.FaultyFiles`.

Modules in reading order:

    contents      the bytes of one file, synced and not synced
    names         folders: names of files, synced and not synced
    model         the disk: applies operations, derives crash states
    faults        rules that make a call fail or stall
    drive         open files, locks, rules, and the journal of operations
"""
