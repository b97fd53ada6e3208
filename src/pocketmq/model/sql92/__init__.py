"""SQL92 as RocketMQ has it: a small language of conditions on the properties of a message.

    tokens.py         text → words, with where each stands
    hints.py          what the author of a wrong expression probably meant
    parser.py         words → tree, with RocketMQ's precedence and its rules about types
    tree.py           what an expression says, and how deep it may go
    evaluation.py     tree → functions that answer true, false or unknown
    java_numbers.py   numbers in texts, as Java reads them
    expression.py     an expression that is ready to be asked

The rule of this folder: an expression that both we and Apache RocketMQ take selects the same messages on both, to the last
odd corner. What Apache silently misreads, such as everything behind the first word that it does not understand, is an error here.
Brokers ask expressions; clients only look whether theirs can be read, because Apache's brokers take a wrong one for "everything".
docs/sql92.md tells users about the language.
"""

from pocketmq.model.sql92.expression import Expression, Lookup, check_expression
from pocketmq.model.sql92.parser import MAX_CHARACTERS as LONGEST_EXPRESSION

__all__ = ["LONGEST_EXPRESSION", "Expression", "Lookup", "check_expression"]
