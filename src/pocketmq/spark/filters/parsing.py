"""The option `filter`: a part of Spark's SQL, with Spark's meaning.

    any          all  (OR all)*
    all          one  (AND one)*
    one          NOT one  |  ( any )  |  comparison
    comparison   operand ( = | == | <> | != | < | <= | > | >= ) literal        or the literal first
                 operand IS [NOT] NULL
                 operand [NOT] IN ( literal , … )
                 operand [NOT] BETWEEN literal AND literal
    operand      a column  |  properties [ text ]
    literal      text in quotes  |  whole number  |  TIMESTAMP '2026-01-01 00:00:00Z'

A literal has the type of its column. Spark compares a text with a number by a cast that depends on its settings, so the option
refuses that, and everything else that could mean something else to Spark.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Final, NamedTuple

from pocketmq.errors import InvalidExpression
from pocketmq.spark.filters.conditions import (
    And,
    Comparison,
    Condition,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Or,
    Path,
    negated,
)
from pocketmq.spark.schema import Name, type_of

MAX_CHARACTERS: Final = 65_536
MAX_DEPTH: Final = 32
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<text>'(?:[^'\\]|'')*'|\"[^\"\\]*\")|(?P<whole>-?\d+)(?![\w.])|(?P<word>`\w+`|[A-Za-z_]\w*)"
    r"|(?P<symbol><=>|==|<>|!=|<=|>=|[=<>()\[\],])|(?P<end>$)|(?P<other>\S))",
    re.ASCII,
)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_KEYWORDS: Final = frozenset({"AND", "OR", "NOT", "IN", "IS", "NULL", "BETWEEN", "TIMESTAMP"})
_COLUMNS: Final = {name.value.lower(): name for name in Name}
_COMPARISONS: Final[dict[str, type[Comparison]]] = {
    "=": EqualTo,
    "==": EqualTo,
    "<": LessThan,
    "<=": LessThanOrEqual,
    ">": GreaterThan,
    ">=": GreaterThanOrEqual,
}
_FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_UNEQUAL: Final = ("<>", "!=")
_TYPES: Final = {"string": "text", "int": "whole", "bigint": "whole", "timestamp": "time"}
_EXAMPLES: Final = {
    "text": "a text such as 'Oslo'",
    "whole": "a whole number",
    "time": "TIMESTAMP '2026-01-01 00:00:00Z'",
}


def parse_filter(text: str) -> Condition:
    """The condition; InvalidExpression with the position of the first word that the option does not accept."""
    if len(text) > MAX_CHARACTERS:
        raise InvalidExpression(f"it has {len(text)} characters; the limit is {MAX_CHARACTERS}")
    parser = _Parser(text)
    condition = parser.any()
    parser.expect_end()
    return condition


def has_doubled_quotes(text: str) -> bool:
    """Whether a condition has a text such as 'it''s', which PySpark 4.0 reads as its."""
    literals = (match["text"] for match in _TOKEN.finditer(text))
    return any(one and one[0] == "'" and "''" in one[1:-1] for one in literals)


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


class _Literal(NamedTuple):
    kind: str
    value: str | int
    token: _Token


class _Parser:
    """Reads a text from left to right; `token` is the next one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._depth = 0
        self._at = 0
        self.token = self._read()

    def any(self) -> Condition:
        return self._joined("OR", Or, self._all)

    def _all(self) -> Condition:
        return self._joined("AND", And, self._one)

    def _joined(self, word: str, kind: type[And] | type[Or], inner: Callable[[], Condition]) -> Condition:
        parts = [inner()]
        while self._accept(word):
            parts.append(inner())
        return parts[0] if len(parts) == 1 else kind(tuple(parts))

    def _one(self) -> Condition:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._wrong(f"at most {MAX_DEPTH} nested conditions")
        if self._accept("NOT"):
            found = negated(self._one())
        elif self._accept("("):
            found = self.any()
            self._expect(")")
        else:
            found = self._comparison()
        self._depth -= 1
        return found

    def _comparison(self) -> Condition:
        if (left := self._literal()) is not None:
            operator = self._next().text
            path = self._operand()
            return self._compared(path, _FLIPPED.get(operator, operator), left)
        path = self._operand()
        if self._accept("IS"):
            is_negated = self._accept("NOT")
            self._expect("NULL")
            return IsNotNull(path) if is_negated else IsNull(path)
        if (is_negated := self._accept("NOT")) and self._word() not in ("IN", "BETWEEN"):
            raise self._wrong("IN or BETWEEN after NOT")
        found: Condition
        if self._accept("IN"):
            found = In(path, self._list(path))
        elif self._accept("BETWEEN"):
            low = self._typed(path, self._expected_literal())
            self._expect("AND")
            high = self._typed(path, self._expected_literal())
            found = And((GreaterThanOrEqual(path, low), LessThanOrEqual(path, high)))
        else:
            operator = self.token.text
            if operator not in _COMPARISONS and operator not in _UNEQUAL:
                raise self._wrong("a comparison (=, <>, <, <=, >, >=), IN, BETWEEN or IS NULL")
            self._next()
            found = self._compared(path, operator, self._expected_literal())
        return negated(found) if is_negated else found

    def _compared(self, path: Path, operator: str, literal: _Literal) -> Condition:
        value = self._typed(path, literal)
        if operator in _UNEQUAL:
            return negated(EqualTo(path, value))
        if operator not in _COMPARISONS:
            raise self._wrong("a comparison (=, <>, <, <=, >, >=)", literal.token)
        return _COMPARISONS[operator](path, value)

    def _list(self, path: Path) -> tuple[str | int, ...]:
        self._expect("(")
        values = [self._typed(path, self._expected_literal())]
        while self._accept(","):
            values.append(self._typed(path, self._expected_literal()))
        self._expect(")")
        return tuple(dict.fromkeys(values))

    def _operand(self) -> Path:
        token = self.token
        word = token.text.strip("`")
        if token.kind != "word" or (token.text[0] != "`" and word.upper() in _KEYWORDS):
            raise self._wrong("a column or properties['key']")
        name = _COLUMNS.get(word.lower())
        if name is None:
            raise InvalidExpression(f"{self._where(token)}: a topic has no column {word!r}{_hint(word)}")
        self._next()
        if name is not Name.PROPERTIES:
            return (name.value,)
        if not self._accept("["):
            raise self._wrong("a key after properties: properties['city']")
        key = self._next()
        if key.kind != "text":
            raise self._wrong("the key of a property as a text: properties['city']", key)
        self._expect("]")
        return name.value, _unquoted(key.text)

    def _literal(self) -> _Literal | None:
        token = self.token
        if token.kind == "text":
            return _Literal("text", _unquoted(self._next().text), token)
        if token.kind == "whole":
            number = int(self._next().text)
            if not -(2**63) <= number < 2**63:
                raise self._wrong("a whole number of 64 bits", token)
            return _Literal("whole", number, token)
        if self._accept("TIMESTAMP"):
            return _Literal("time", self._micros(self._next()), token)
        return None

    def _expected_literal(self) -> _Literal:
        found = self._literal()
        if found is None:
            raise self._wrong("a text, a whole number or a TIMESTAMP; for other values, filter the DataFrame")
        return found

    def _micros(self, token: _Token) -> int:
        text = _unquoted(token.text) if token.kind == "text" else ""
        if not _TIME.fullmatch(text):
            raise self._wrong("a time with its zone: TIMESTAMP '2026-01-01 00:00:00Z'", token)
        try:
            return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)
        except (ValueError, OverflowError) as error:
            raise self._wrong(f"a time ({error})", token) from None

    def _typed(self, path: Path, literal: _Literal) -> str | int:
        kind = _TYPES.get("string" if len(path) == 2 else type_of(Name(path[0])))
        if kind is None:
            raise self._wrong(f"IS NULL: the column {path[0]} cannot be compared", literal.token)
        if literal.kind != kind:
            shown = path[0] if len(path) == 1 else f"properties[{path[1]!r}]"
            raise self._wrong(f"{_EXAMPLES[kind]} to compare with {shown}", literal.token)
        return literal.value

    # words

    def _read(self) -> _Token:
        match = _TOKEN.match(self._text, self._at)
        assert match is not None
        assert match.lastgroup is not None
        self._at = match.end()
        token = _Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup))
        if token.kind == "other":
            raise self._wrong(_hint_about(token.text), token)
        return token

    def _next(self) -> _Token:
        token = self.token
        self.token = self._read()
        return token

    def _word(self) -> str:
        return self.token.text.upper() if self.token.kind in ("word", "symbol") else ""

    def _accept(self, word: str) -> bool:
        if self._word() != word:
            return False
        self._next()
        return True

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            raise self._wrong(word)

    def expect_end(self) -> None:
        if self.token.kind != "end":
            raise self._wrong("AND, OR or the end")

    def _wrong(self, expected: str, token: _Token | None = None) -> InvalidExpression:
        found = token or self.token
        shown = repr(found.text) if found.text else "the end"
        return InvalidExpression(f"{self._where(found)}: expected {expected}, found {shown}")

    def _where(self, token: _Token) -> str:
        return f"character {token.at + 1}"


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'") if text[0] == "'" else text[1:-1]


def _hint_about(text: str) -> str:
    if text in "'\"":
        return "a text that ends with the same quote, and has no backslash"
    if text.isdigit() or text == ".":
        return "a whole number"
    return "a word, a text, a number or a comparison"


def _hint(word: str) -> str:
    near = get_close_matches(word.lower(), _COLUMNS, 1, 0.5)
    return f"; did you mean {_COLUMNS[near[0]]}?" if near else f"; write properties['{word}'] for a property"
