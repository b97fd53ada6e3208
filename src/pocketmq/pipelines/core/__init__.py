"""The base of all pipelines, and functions for your own Spark code.

Modules in reading order:

    libraries    imports PySpark, or says what to install; error texts of Spark
    settings     fields of a pipeline's settings, and connector options that a user may set
    job_file     reads the settings of a pipeline; command line options override the file
    sessions     creates a Spark session with measured defaults
    checkpoint   records the owner of a checkpoint; refuses another pipeline's
    plan         a dry run: the plan of a pipeline
    running      starts, watches and stops the queries of a run
    progress     query progress as rows for tables, logs and metrics
    rows         JSON messages as typed rows; dead letters, duplicates, late rows
    contracts    rules that every row must keep, as data
"""
