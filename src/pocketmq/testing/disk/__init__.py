"""A disk in memory that models power loss. Tests use it through `pocketmq.testing.FaultyFiles`.

Modules in reading order:

    contents      the bytes of one file: synced, and written but not synced
    names         directories: which name means which file, synced and not
    model         both together: operations in, crash states out
    faults        rules that make a call fail or stall
    drive         one call at a time: rules, model, journal
    real_folder   copies from and to a real directory
"""
