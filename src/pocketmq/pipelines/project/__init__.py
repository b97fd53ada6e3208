"""A project for Spark's Declarative Pipelines, with our source and sink: made from a template, and run."""
