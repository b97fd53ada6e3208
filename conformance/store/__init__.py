"""Stores that one side wrote and the other reads: in turns, after crashes, and with both at the door at once.

Scenarios     turns.py removals.py kills.py locks.py
Messages      drafts.py numbered.py
Both sides    our_store.py killed_writer.py | serving.py; file_sizes.py and tables.py tell each what the other has
Judgement     snapshots.py
"""
