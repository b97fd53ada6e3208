"""Benchmarks of the Spark connector: `python -m bench.spark`."""
