"""Topics to a lake: files by topic and day, and a manifest that says which offsets are in which file.

    <lake>/topic=orders/day=2026-11-15/0000000007-part-….parquet    what anybody may read
    <lake>/_manifest/0000000007.json          what belongs to the lake: files, offsets in them, lost ranges
    <lake>/_staging/0000000008/…              a batch that is being written
    <lake>/_checkpoint/…                      Spark's own

A batch is written beside the lake, then noted in the manifest, then moved in:

    1 stage     tasks write files to _staging/<n>       killed here: nobody has seen them, the next run removes them
    2 commit    one file of the manifest, by rename     this is the moment: before it the batch is not there, after it it is
    3 publish   files move to where readers look        killed here: the next run goes on moving, the manifest says what

So no file is ever counted twice: neither by who asks the manifest, nor by who just reads the folder. Spark's own file sink (`_spark_metadata`)
has no step 3 and leaves files of broken batches beside good ones, which only Spark can tell apart; it knows nothing of offsets; and
its list may not be changed, so small files could never be made one. Hence not by it.

What is done is asked of the manifest and not of the checkpoint: it knows the next offset of each queue, and what comes again, for
whatever reason, is left out. A lost checkpoint costs nothing: the next one begins where the manifest ends.

Modules in reading order:

    manifest        the manifest: files, their offsets, lost ranges, next offset of each queue
    form            file names, columns and file formats of a lake
    staging         stages a batch through Spark, publishes it, removes what a killed run left
    parquet_files   stages a batch as Parquet files written by the task itself
    lake            commits and publishes batches; compacts small files
    reading         reads a lake by its manifest
    job             `pocketmq pipeline archive`
"""
