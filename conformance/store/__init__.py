"""Stores that one side wrote and the other reads: in turns, after crashes, and with both on one folder at the same time.

Scenarios     turns.py removals.py kills.py locks.py
Messages      drafts.py numbered.py
Both sides    our_store.py killed_writer.py | serving.py; file_sizes.py and tables.py give both the same settings
Judgement     snapshots.py
"""
