"""Reads: the driver plans ranges of queues; tasks pull and decode them.

Modules in reading order:

    offsets             the offset of a streaming query, as JSON in the checkpoint
    metadata            queries to brokers about queues, retried and cached
    bounds              where a read starts and ends
    data_loss           messages that were deleted before they were read
    pushdown            what brokers and the connector apply of filters
    planning            splits ranges of queues into partitions
    batch_plan          the plan of a batch
    batch_reader        a batch read, as Spark calls it
    metadata_tables     topics, queues, groups, losses and dead letters as rows
    stream_reader       a streaming read, as Spark calls it
    stream_driver       the driver of a streaming read: end of the next batch, limits, published offsets
    stream_health       warnings before unread messages expire, and outages of brokers
    source_progress     what the progress of a query shows: topics, lag, outages
    progress_listener   publishes offsets when a batch ends
    range_reading       a task: pulls ranges ahead and decodes them
    chunks              a task's own pulls: several requests ahead, bodies into one buffer
"""
