"""SQL92 as RocketMQ has it: a small language of conditions on the properties of a message.

An expression that both PocketMQ and Apache RocketMQ accept selects the same messages on both, in every corner case. Where
Apache silently misreads an expression, for example everything after the first word that it does not understand, PocketMQ
reports an error. Brokers evaluate expressions; clients only parse theirs, because Apache's brokers treat an invalid
expression as "everything". docs/reference/sql92.md describes the language for users.

Modules in reading order:

    tree         the syntax tree, and how deep it may be
    parser       text to tree, with RocketMQ's precedence and type rules; hints about mistakes
    evaluation   tree to functions that return True, False or None (unknown)
"""

from pocketmq.model.sql92.evaluation import Expression, Lookup, check_expression
from pocketmq.model.sql92.parser import MAX_CHARACTERS as LONGEST_EXPRESSION

__all__ = ["LONGEST_EXPRESSION", "Expression", "Lookup", "check_expression"]
