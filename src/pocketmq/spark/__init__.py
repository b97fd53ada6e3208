"""The Spark connector: topics as DataFrames, and DataFrames as topics."""
