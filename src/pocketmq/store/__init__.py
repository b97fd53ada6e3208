"""The store: RocketMQ's files, written fast, never lying after a crash.

    commitlog/      every message, one after the other: the truth
    consumequeue/   where each message of a queue lies in the log      derived: deleting them loses nothing
    index/          key → where in the log                             derived
    config/         tables: topics, groups, offsets

One thread owns a store. `message_store.MessageStore` is all that a broker sees of it.
"""
