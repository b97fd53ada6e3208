"""How long things take that clients wait for, with Apache's broker and with ours, one after the other on the same machine.

measuring.py    what is measured, by our Python client
bounds.py       ours within the bounds that Apache's shows
"""
