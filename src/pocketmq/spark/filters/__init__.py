"""Conditions on the columns of a topic: the option `filter`, and what brokers and the connector do with it.

Modules in reading order:

    conditions   the tree of a condition
    parsing      the option `filter`, a condition in Spark's SQL, to a tree
    sql92        the part of a condition that brokers evaluate exactly as Spark does
    masks        a condition on Arrow arrays
"""
