"""The real mqadmin with our servers: every command that was captured, in an order in which each finds what it needs.

commands.py      the captured commands, and what they printed with Apache's servers
stay.py          a live producer and consumer for them to look at
subcommands.py   running them, and judging what they print
"""
