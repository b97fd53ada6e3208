"""What all pipelines share, and functions for Spark code of your own.

Modules in reading order:

    libraries           imports PySpark, or says what to install
    settings            fields of a pipeline's settings, for file and command line
    job_file            reads the settings of a pipeline; options override the file
    connector_options   which connector options a user may pass through, and to which side
    sessions            creates a Spark session with measured defaults
    checkpoint          recognizes the owner of a checkpoint; refuses a foreign one
    plan                a dry run: what a pipeline would do
    running             starts, watches and stops the queries of a run
    progress            query progress as rows for tables, logs and metrics
    rows                JSON messages as typed rows; dead letters for the rest
    contracts           rules that every row must keep, as data
"""
