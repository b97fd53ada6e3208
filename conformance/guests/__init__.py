"""Clients of other languages with our servers. Each has one small program that does as it is told and prints what happens.

go/, node/, cpp/    the programs
programs.py         what each of them needs, fetched once, and how it is started
visits.py           what they do here: their counterpart is our Python client
"""
