"""Writes: tasks send rows, the driver commits the batch.

Modules in reading order:

    writer         batch and streaming writers, as Spark calls them
    sink_task      one task of a write
    sink_rows      columns of a row to a message
    sink_batches   many rows to encoded batches, without an object for each row
    sink_sending   sends batches in parallel and waits for every result
    sink_offsets   where a batch that is run again searches for its rows
    sink_replays   ids of rows, and the rows that an earlier attempt wrote
"""
