"""Topics to a lake: files by topic and day, and a manifest with the offsets in each file.

    <lake>/topic=orders/day=2026-11-15/0000000007-part-….parquet    for any reader
    <lake>/_manifest/0000000007.json          the contents of the lake: files, their offsets, lost ranges
    <lake>/_staging/0000000008/…              a batch that is being written
    <lake>/_checkpoint/…                      Spark's checkpoint

A batch is written beside the lake, then recorded in the manifest, then published:

    1 stage     tasks write files to _staging/<n>       killed here: the files were never visible; the next run removes them
    2 commit    one file of the manifest, by rename     makes the batch part of the lake
    3 publish   files move to their final folders       killed here: the next run moves the rest, by the manifest

So no file counts twice, neither for readers of the manifest nor for readers of the folder. Spark's own file sink (`_spark_metadata`)
has no step 3: it leaves files of failed batches beside good ones, which only Spark can distinguish. It records no offsets, and its
list of files must not change, which rules out compaction.

The manifest, not the checkpoint, says what is done: it has the next offset of each queue, and messages that are read again are
skipped. A lost checkpoint loses nothing: the next one starts where the manifest ends.

Tables of Delta and Iceberg need none of this: each of their commits has a record of the offsets in the table, see `contents`.

Modules in reading order:

    manifest          the manifest: files, their offsets, lost ranges, next offset of each queue
    contents          the record of a table: which offsets it holds
    form              file names, columns and formats of a lake
    formats           tables of Delta and Iceberg: records in commits, compaction, expiry
    hadoop            where a lake is: a disk, or a file system of Hadoop
    staging           stages a batch with Spark, publishes it, removes the files of a killed run
    parquet_files     --engine direct: stages a batch as Parquet files that the task itself writes
    lake              commits and publishes batches; compacts small files
    registry          --schema: a small client of a schema registry; bodies that do not fit
    avro_bodies       --schema: bodies in Avro
    protobuf_bodies   --schema: bodies in Protobuf
    bodies            --schema: typed columns from bodies
    shape             --where and --select: the rows of a lake or a table
    table             tables of catalogs, created, evolved and appended to
    sinks             a lake or a table, for `archive` and `backfill`
    reading           reads a lake by its manifest, and a table by its records
    settings          the settings of an archive, and their checks
    job               `pocketmq pipeline archive`
"""
