"""Transactions: messages that are delivered when their producer says so, and about which it is asked when it does not.

half        what a message looks like on its way: waiting, asked about, committed, given up
ledger      which half messages are open, kept in the op topic and in two committed offsets
copies      all copies of one transaction, found on the disk
decisions   what a producer decides (code 37)
checks      asking about what was not decided (code 39)
presence    how old half messages are, when the wall clock was set back
transactions.Transactions has all of them, for the rest of the broker.
"""
