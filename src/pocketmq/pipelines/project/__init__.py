"""A project for Spark's Declarative Pipelines with our source and sink. `template` has its files.

Modules in reading order:

    running         runs a project, and shows its events
    spark_program   runs `spark-pipelines` as a process group that ends as a whole
"""
