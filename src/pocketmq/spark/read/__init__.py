"""Reads: the driver plans ranges of queues, tasks pull and decode them.

Modules in reading order:

    offsets             the offset of a streaming query, as JSON in the checkpoint
    metadata            answers of brokers about queues, retried and cached
    bounds              where a read starts and ends
    data_loss           messages that were deleted before they were read
    planning            splits ranges of queues into partitions
    pushdown            filters of the query that the connector applies
    batch_reader        a batch read
    stream_reader       a streaming read, as Spark calls it
    stream_driver       the driver's side: end of the next batch, limits, progress
    stream_watch        warns before unread messages expire
    progress_listener   publishes progress when a batch ends
    range_reading       a task: pulls ranges ahead and decodes them
    chunks              a task's pulls: several requests ahead, bodies into one buffer
"""
