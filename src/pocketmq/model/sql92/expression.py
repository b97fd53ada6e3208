"""An expression that is ready to be asked: parsed once, asked for every message."""

from pocketmq.model.sql92.evaluation import Lookup, question_of
from pocketmq.model.sql92.parser import parse
from pocketmq.model.sql92.tree import Filled, OneOf, Property, walk

__all__ = ["Expression", "Lookup", "check_expression"]


class Expression:
    """`text` as a question about a message's properties; InvalidExpression when it is not SQL92.

    `names` are the properties that it looks at. `failures` counts the messages that had no answer, because a property that is
    compared with a number held none: such a message does not match, and its sender or the expression is probably wrong.
    """

    __slots__ = ("_question", "failures", "names", "text")

    def __init__(self, text: str) -> None:
        tree = parse(text)
        self.text = text
        self.names = frozenset(node.name for node, _ in walk(tree) if isinstance(node, Property | Filled | OneOf))
        self.failures = 0
        self._question = question_of(tree)

    def matches(self, get: Lookup) -> bool:
        """Whether the answer is true; unknown, or no answer, is not. `get` finds a property: for a dict, its own `get`."""
        try:
            return self._question(get) is True
        except ValueError:
            self.failures += 1
            return False


def check_expression(text: str) -> None:
    """InvalidExpression, with where and why, when `text` is not SQL92."""
    parse(text)
