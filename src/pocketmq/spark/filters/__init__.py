"""Conditions on the columns of a topic: the option `filter`, and what brokers and the connector do with it.

Modules in reading order:

    conditions   the tree of a condition, and the part that brokers can evaluate, as SQL92
    parsing      the option `filter`, a condition in Spark's SQL, to a tree
    masks        a condition on Arrow arrays
"""
