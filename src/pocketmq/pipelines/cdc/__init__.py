"""Change data capture: the changes of a database table, as Debezium sends them to a topic, become rows of a table.

    topic ── changes ── columns ── newest change of each row ──┬─► delete markers
                                                               └─► MERGE, with the offsets in the table's own commit

Debezium sends a change again when it starts again, and its sink for RocketMQ sends many messages at the same time. So the order of a
queue is not the order of the database. Each change has a position in the log of its database, and a row keeps the position of its last
change: a change with a lower one is not applied. A deleted row has no position, so deletions are kept in a second table for a while.

That makes a merge repeatable in any order. Batches that were applied before are not read again, as the table knows its offsets, see
`archive.contents`.

Modules in reading order:

    changes      Debezium's messages as changes with a position
    columns      columns of the rows, by Debezium's schemas
    merging      merges changes into a table of Delta or Iceberg
    job          `pocketmq pipeline cdc`
"""
