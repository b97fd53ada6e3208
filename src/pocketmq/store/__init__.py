"""The store: RocketMQ's files.

    commitlog/      every message, one record after the other; all other files can be rebuilt from it
    consumequeue/   position in the log of each message of a queue        derived
    index/          key → position in the log                             derived
    config/         tables: topics, groups, offsets

One thread owns a store. A broker uses `message_store.MessageStore`, a slave `receiving.SlaveStore`, and nothing else.

Modules in reading order:

    settings         every limit and interval, with RocketMQ's defaults
    message_store    the store as a broker uses it: append in turns
    receiving        the store of a slave: the log of a master, byte for byte
    readable_store   queries: messages by queue, offset, key and time
    reading          one pull: which messages it returns, and the next offset
    parts            builds, starts and closes the parts of a store
    log/             the commit log: write, flush, prepare files, scan
    queues/          consume queues
    index/           the key index
    upkeep           background work in small steps: flush, index, retention
    worker           a thread for blocking calls; results return to the owner
    retention        which log files may be deleted
    owner            the lock on a store folder, and the mark of a clean stop
    checkpoint       store times up to which each kind of file is on disk
    resume           the file that records the end of every queue, for a quick start
    tables           tables as JSON files, replaced as a whole
    layout           file sizes of an existing store
    recovery/        opens a store after a crash
    tools/           verify, dump and rebuild
"""
