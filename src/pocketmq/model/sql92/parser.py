"""From text to a syntax tree: RocketMQ's grammar, from the loosest operator to the tightest.

    any          all  (OR all)*
    all          equality  (AND equality)*
    equality     comparison  ( = comparison | <> comparison | IS [NOT] NULL )*
    comparison   operand  ( > operand | >= … | < … | <= … | [NOT] BETWEEN operand AND operand
                          | [NOT] IN ( text , … ) | [NOT] CONTAINS text | [NOT] STARTSWITH text | [NOT] ENDSWITH text )*
    operand      (NOT | - | +)*  ( property | text | number | TRUE | FALSE | NULL | ( any ) )

NOT binds tighter than any comparison, as in RocketMQ: `NOT a = 5` is `(NOT a) = 5`. The parser checks operand types, so every tree can
be evaluated. Length, tokens and depth of an expression are limited, because it comes from any subscriber. The tree has fewer than two
nodes per token, and each node is visited once per message.

Tokens:

    name       a letter, _ or $, then also digits; case-sensitive
    keyword    AND, Between, is …; not case-sensitive
    whole      0, 42, 42L
    fraction   4.2, .5, 5., 1e3
    text       'it''s'
    symbol     = <> > >= < <= ( ) , + -
    other      any other character

Blanks, comments from -- to the end of the line, and comments between /* and */ separate tokens.

Errors contain a hint about what the author probably meant, if there is a good guess.
"""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final, NamedTuple

from pocketmq.errors import InvalidExpression
from pocketmq.model.sql92.tree import (
    AllOf,
    AnyOf,
    Condition,
    Equal,
    Filled,
    Minus,
    Node,
    Not,
    Number,
    NumberType,
    OneOf,
    Operand,
    Ordered,
    Property,
    Search,
    Text,
    Truth,
    nodes_with_depth,
)

NAME: Final = "name"
WHOLE: Final = "whole"
FRACTION: Final = "fraction"
TEXT: Final = "text"
OTHER: Final = "other"
END: Final = "end"

KEYWORDS: Final = frozenset(
    {"AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE", "CONTAINS", "STARTSWITH", "ENDSWITH"}
)

# Every alternative is linear, also for a quote or comment that is not closed.
_WORD = re.compile(
    r"""
      (?P<blank>    [ \t\n\r\f]+ | --[^\n\r]* | /\*.*?\*/ )
    | (?P<name>     [A-Za-z_$][A-Za-z0-9_$]* )
    | (?P<fraction> (?: [0-9]+\.[0-9]* | \.[0-9]+ ) (?: [eE][+-]?[0-9]+ )? | [0-9]+[eE][+-]?[0-9]+ )
    | (?P<whole>    [0-9]+[lL]? )
    | (?P<text>     '(?: [^'] | '' )*+' )
    | (?P<symbol>   <> | >= | <= | [=><(),+-] )
    | (?P<other>      . )
    """,
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    """A token and its position. The `kind` of a keyword is its upper case, of a symbol the symbol itself."""

    kind: str
    image: str
    at: int


def scan(text: str) -> Iterator[Token]:
    """The tokens of `text`, then one of kind END."""
    for match in _WORD.finditer(text):
        kind, image, at = match.lastgroup, match[0], match.start()
        if kind == "blank":
            continue
        if kind == "symbol":
            yield Token(image, image, at)
        elif kind == NAME and (keyword := image.upper()) in KEYWORDS:
            yield Token(keyword, image, at)
        else:
            yield Token(kind or OTHER, image, at)
    yield Token(END, "", len(text))


def text_of(token: Token) -> str:
    """The content of a quoted text."""
    return token.image[1:-1].replace("''", "'")


_LONGEST_KEYWORD: Final = max(map(len, KEYWORDS))
_SEARCH: Final = "use CONTAINS, STARTSWITH or ENDSWITH, which take plain text"
_QUOTES: Final = "put texts in single quotes: 'x'"
_NAMES: Final = "a property name has only letters, digits, _ and $"
_NO_ARITHMETIC: Final = f"there is no arithmetic, and {_NAMES}"

_OTHER_DIALECTS = {
    **dict.fromkeys(("LIKE", "ILIKE", "RLIKE", "REGEXP", "MATCHES", "SIMILAR", "GLOB"), _SEARCH),
    "XOR": "for conditions, use <>",
    "ISNULL": "use IS NULL",
    "NOTNULL": "use IS NOT NULL",
    "EQ": "use =",
    "NE": "use <>",
    "GT": "use >",
    "LT": "use <",
}
_LOOKALIKES = {
    **dict.fromkeys('"“”‘’', _QUOTES),
    **dict.fromkeys("+*/%^", "there is no arithmetic"),
    "-": _NO_ARITHMETIC,
    ".": _NAMES,
    "`": "write property names without quotes",
    "!": "for not equal use <>, for not use NOT",
    "&": "use AND",
    "|": "use OR",
    ";": "remove it",
    "'": "this text is not closed",
}
_PAIRS = {"==": "use a single =", "=>": "use >=", "=<": "use <="}
"""Wrong operators, which the parser notices at their second character."""


def hint_for(text: str, token: Token) -> str:
    """What to write instead of the unexpected `token`."""
    if token.kind == END:
        return ""
    if token.kind == NAME:
        return _hint_for_name(token.image)
    if hint := _PAIRS.get(text[max(0, token.at - 1) : token.at + 1]):
        return hint
    if text.startswith("/*", token.at):
        return "this comment is not closed"
    if text.strip() == "*":
        return "for all messages use TRUE, or the type TAG"
    if token.kind == OTHER and token.image.isalnum():
        return _NAMES
    return _LOOKALIKES.get(token.image, "")


def _hint_for_name(name: str) -> str:
    word = name.upper()
    if word in _OTHER_DIALECTS:
        return _OTHER_DIALECTS[word]
    if len(word) <= _LONGEST_KEYWORD + 2 and (near := get_close_matches(word, KEYWORDS, 1)):
        return f"did you mean {near[0]}?"
    return ""


def hint_for_text(token: Token) -> str:
    """What to write where a quoted text is expected."""
    return f"write '{token.image[:40]}'" if token.kind in (NAME, WHOLE, FRACTION) else ""


def found(token: Token) -> str:
    """`token` as shown in errors."""
    if token.kind == END:
        return "the end"
    image = token.image if len(token.image) <= 40 else token.image[:37] + "..."
    return image if token.kind in (NAME, WHOLE, FRACTION, TEXT) or token.kind in KEYWORDS else repr(image)


MAX_CHARACTERS: Final = 65_536
MAX_TOKENS: Final = 4_096
"""The most tokens: enough for a thousand comparisons joined by OR."""
MAX_DEPTH: Final = 32
"""The deepest nesting of parentheses, NOTs and comparisons. A chain of ANDs or ORs counts as one level."""

_MAX_INT: Final = (1 << 31) - 1
_MAX_LONG: Final = (1 << 63) - 1
_MAX_DIGITS: Final = 19
_TRUTHS = {"TRUE": True, "FALSE": False, "NULL": None}
_COMPARISONS = "a comparison such as = or IN"


def parse(text: str) -> Condition:
    """Parse `text`. InvalidExpression names the position of an error and what was expected."""
    if len(text) > MAX_CHARACTERS:
        raise InvalidExpression(f"the SQL92 expression has {len(text)} characters, more than {MAX_CHARACTERS}")
    tree = _Parser(text).parse()
    if max(depth for _, depth in nodes_with_depth(tree)) > MAX_DEPTH:
        raise InvalidExpression(f"the SQL92 expression has more than {MAX_DEPTH} nested operators")
    return tree


class _Parser:
    """One pass over the tokens; `_token` is the next one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = scan(text)
        self._token = next(self._tokens)
        self._words = 0
        self._open = 0

    def parse(self) -> Condition:
        start = self._token
        node = self._any()
        if self._token.kind != END:
            raise self._unexpected(f"{self._goes_on(node)}AND, OR or the end")
        return self._condition(node, start)

    def _any(self) -> Node:
        start = self._token
        node = self._all()
        if self._token.kind != "OR":
            return node
        terms = self._flat(AnyOf, self._condition(node, start))
        while self._takes("OR"):
            start = self._token
            terms += self._flat(AnyOf, self._condition(self._all(), start))
        return AnyOf(tuple(terms))

    def _all(self) -> Node:
        start = self._token
        node = self._equality()
        if self._token.kind != "AND":
            return node
        terms = self._flat(AllOf, self._condition(node, start))
        while self._takes("AND"):
            start = self._token
            terms += self._flat(AllOf, self._condition(self._equality(), start))
        return AllOf(tuple(terms))

    def _equality(self) -> Node:
        start = self._token
        node = self._comparison()
        while True:
            sign = self._token
            if self._takes("=") or self._takes("<>"):
                right_start = self._token
                right = self._comparison()
                self._check_equal(node, start, right, right_start)
                equal: Condition = Equal(node, right)
            elif self._takes("IS"):
                sign = self._token
                instead = "<>" if self._takes("NOT") else "="
                if not self._takes("NULL"):
                    hint = f"use {instead} {self._token.kind}" if self._token.kind in _TRUTHS else ""
                    raise self._unexpected("NULL or NOT NULL", hint)
                equal = Equal(node, Truth(None))
            else:
                return node
            node = Not(equal) if sign.kind in ("<>", "NOT") else equal

    def _comparison(self) -> Node:
        start = self._token
        node = self._operand()
        while True:
            wanted = not self._takes("NOT")
            sign = self._token
            if wanted and sign.kind in (">", ">=", "<", "<="):
                self._advance()
                node = self._ordered(sign.kind, node, start)
            elif self._takes("BETWEEN"):
                node = self._between(node, start, wanted)
            elif self._takes("IN"):
                node = self._one_of(node, start, wanted)
            elif sign.kind in ("CONTAINS", "STARTSWITH", "ENDSWITH"):
                self._advance()
                node = Search(sign.kind, node, self._text_literal(), wanted)
            elif wanted:
                return node
            else:
                raise self._unexpected("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH after NOT")

    def _ordered(self, sign: str, left: Node, start: Token) -> Condition:
        right_start = self._token
        right = self._operand()
        return Ordered(sign, self._orderable(left, start, sign), self._orderable(right, right_start, sign))

    def _between(self, value: Node, start: Token, wanted: bool) -> Condition:
        low_start = self._token
        low = self._operand()
        if not self._takes("AND"):
            raise self._unexpected("AND and the upper bound of BETWEEN")
        high_start = self._token
        high = self._operand()
        value = self._orderable(value, start, "BETWEEN")
        low = self._orderable(low, low_start, "BETWEEN")
        high = self._orderable(high, high_start, "BETWEEN")
        if wanted and isinstance(low, Number) and isinstance(high, Number) and low.value > high.value:
            raise self._error(
                low_start, f"nothing is between {low.value} and {high.value}", "write the smaller one first"
            )
        if isinstance(value, Minus):
            # Unknown either way. Evaluating nested ones twice each would take exponential time.
            return Ordered(">=", value, low)
        if wanted:
            return AllOf((Ordered(">=", value, low), Ordered("<=", value, high)))
        return AnyOf((Ordered("<", value, low), Ordered(">", value, high)))

    def _one_of(self, value: Node, start: Token, wanted: bool) -> Condition:
        if not isinstance(value, Property):
            raise self._error(start, "IN needs a property on its left")
        if not self._takes("("):
            raise self._unexpected("( and the list of IN")
        texts = {self._text_literal()}
        while self._takes(","):
            texts.add(self._text_literal())
        if not self._takes(")"):
            raise self._unexpected(", or ) in the list of IN")
        return OneOf(value.name, frozenset(texts), wanted)

    def _operand(self) -> Node:
        signs = []
        while self._token.kind in ("NOT", "-", "+"):
            signs.append(self._advance().kind)
        start = self._token
        node = self._value()
        for sign in reversed(signs):
            if sign == "NOT":
                node = Not(self._condition(node, start))
            elif sign == "-":
                node = Number(-node.value, node.type) if isinstance(node, Number) else Minus(node)
        return node

    def _value(self) -> Node:
        token = self._token
        if token.kind == "(":
            return self._parenthesis()
        if token.kind == NAME:
            node: Node = Property(token.image)
        elif token.kind == TEXT:
            node = Text(text_of(token))
        elif token.kind == WHOLE:
            node = self._whole(token)
        elif token.kind == FRACTION:
            node = self._fraction(token)
        elif token.kind in _TRUTHS:
            node = Truth(_TRUTHS[token.kind])
        else:
            raise self._unexpected("a property, a text, a number, TRUE, FALSE, NOT, - or (")
        self._advance()
        return node

    def _parenthesis(self) -> Node:
        opening = self._advance()
        self._open += 1
        if self._open > MAX_DEPTH:
            raise self._error(opening, f"more than {MAX_DEPTH} nested parentheses")
        node = self._any()
        if not self._takes(")"):
            raise self._unexpected(f"{self._goes_on(node)}AND, OR or )")
        self._open -= 1
        return node

    def _whole(self, token: Token) -> Number:
        digits = token.image.rstrip("lL")
        if digits[0] == "0" and token.image != "0":
            raise self._error(token, f"{found(token)} begins with 0", "write whole numbers without leading 0")
        if len(digits) > _MAX_DIGITS or int(digits) > _MAX_LONG:
            raise self._error(token, f"{found(token)} has more than 64 bits", "write it with a decimal point")
        value = int(digits)
        return Number(value, NumberType.INT if value <= _MAX_INT else NumberType.LONG)

    def _fraction(self, token: Token) -> Number:
        value = float(token.image)
        mantissa = token.image.lower().partition("e")[0]
        if value in (float("inf"), 0.0) and mantissa.strip("0."):
            raise self._error(token, f"{found(token)} is out of range", "numbers go from 4.9e-324 to 1.7e308")
        return Number(value, NumberType.DOUBLE)

    def _text_literal(self) -> str:
        token = self._token
        if token.kind != TEXT:
            raise self._unexpected("a text in single quotes", hint_for_text(token))
        return text_of(self._advance())

    def _condition(self, node: Node, start: Token) -> Condition:
        """`node`, which must be a condition."""
        if isinstance(node, Property):
            return Filled(node.name)
        if isinstance(node, Operand):
            raise self._error(start, f"{found(start)} is not a condition", f"it needs {_COMPARISONS}")
        return node

    def _orderable(self, node: Node, start: Token, sign: str) -> Operand:
        """`node`, which must be a number or a property."""
        if isinstance(node, Text):
            raise self._error(start, f"a text cannot be compared by {sign}", "use =, <> or IN")
        if not isinstance(node, Operand):
            hint = f"NOT binds tighter: write NOT (a {sign} …)" if start.kind == "NOT" else "use = or <>"
            raise self._error(start, f"a condition cannot be compared by {sign}", hint)
        return node

    def _check_equal(self, left: Node, left_start: Token, right: Node, right_start: Token) -> None:
        for node, start in ((left, left_start), (right, right_start)):
            if node == Truth(None):
                raise self._error(start, "nothing equals NULL", "use IS NULL or IS NOT NULL")
        if isinstance(left, Truth) and isinstance(right, Text | Number):
            raise self._error(left_start, f"{found(left_start)} cannot be compared with {found(right_start)}")

    @staticmethod
    def _flat(kind: type[AllOf] | type[AnyOf], node: Condition) -> list[Condition]:
        """The terms that `node` adds to an AND or OR. Nested ones of the same kind are merged."""
        return list(node.terms) if isinstance(node, kind) else [node]

    def _advance(self) -> Token:
        token = self._token
        self._words += 1
        if self._words > MAX_TOKENS:
            raise self._error(token, f"more than {MAX_TOKENS} tokens", "use IN instead of many ORs")
        self._token = next(self._tokens)
        return token

    def _takes(self, kind: str) -> bool:
        if self._token.kind != kind:
            return False
        self._advance()
        return True

    @staticmethod
    def _goes_on(node: Node) -> str:
        return f"{_COMPARISONS}, " if isinstance(node, Operand) else ""

    def _unexpected(self, expected: str, hint: str = "") -> InvalidExpression:
        what = f"expected {expected}, found {found(self._token)}"
        return self._error(self._token, what, hint or hint_for(self._text, self._token))

    def _error(self, token: Token, what: str, hint: str = "") -> InvalidExpression:
        line = self._text.count("\n", 0, token.at) + 1
        column = token.at - self._text.rfind("\n", 0, token.at)
        tail = f" ({hint})" if hint else ""
        return InvalidExpression(f"SQL92, line {line}, column {column}: {what}{tail}")
