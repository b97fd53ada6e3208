"""Benchmarks of the store beside a plain file and SQLite: `python -m bench.store`."""
