"""A project for Spark's Declarative Pipelines with our source and sink. The template is in `template`.

Modules in reading order:

    running         runs a project and forwards the log lines about the pipeline
    spark_program   `spark-pipelines` as a process group that ends as a whole
"""
