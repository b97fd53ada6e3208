"""Transactions: messages that are delivered once their producer commits them.

Modules in reading order:

    half           a half message and what becomes of it: checked, committed, rolled back, given up
    ledger         which half messages are open, stored in the op topic and two committed offsets
    decisions      commits and rollbacks by producers (code 37)
    checks         check-backs of undecided transactions (code 39)
    transactions   all of it, as the rest of the broker uses it
"""
