"""Clients of other languages with our servers. Each has one small program that runs a command and prints what happens.

go/, node/, cpp/    the programs
programs.py         downloads what each program needs, and starts it
visits.py           the checks; the other side is our Python client
"""
