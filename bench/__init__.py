"""Micro benchmarks of the codecs, each beside other ways to do the same: `python -m bench`."""
