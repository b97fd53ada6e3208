"""A second, slow SQL92: expressions as tuples, printed in many ways, and judged by the plainest rules. For tests to compare with.

("and" | "or", term, term, …)   ("not", term)   ("truth", bool | None)   ("is null", name)
(sign, name, number)            ("between", name, low, high)              ("same", term, bool)
("=" | "<>", name, text or number or bool)                                ("in", name, texts, wanted)
("contains" | "startswith" | "endswith", name, text, wanted)
"""

import operator
import random
import re
from collections.abc import Callable
from typing import Any, Final

from hypothesis import strategies as st

NO_ANSWER: Final = "no answer"
Term = tuple[Any, ...]
Answer = bool | str | None

NAMES = st.sampled_from(["a", "b", "c", "$d", "_E1", "TAGS"])
WORDS = st.sampled_from(["", "x", "ab", "it's", "5", "true", "日本", "a b"])
WHOLES = st.integers(-12, 12) | st.sampled_from([2**31 - 1, -(2**31), 2**31, 3_000_000_000, 2**63 - 1])
FRACTIONS = st.floats(-20, 20).map(lambda value: value if abs(value) > 1e-9 else 0.5)
NUMBERS = WHOLES | FRACTIONS
BOUNDS = st.tuples(NUMBERS, NUMBERS).map(lambda pair: tuple(sorted(pair)))
VALUES = WORDS.filter(bool) | NUMBERS.map(str) | st.sampled_from(["TRUE", "False", "-0.0", "1e3", "007", "six"])
PROPERTIES = st.dictionaries(NAMES, VALUES)

_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "<>": operator.ne,
}
_SEARCHES: dict[str, Callable[[str, str], bool]] = {
    "contains": operator.contains,
    "startswith": str.startswith,
    "endswith": str.endswith,
}

_LEAVES: st.SearchStrategy[Term] = st.one_of(
    st.tuples(st.just("truth"), st.sampled_from([True, False, None])),
    st.tuples(st.just("is null"), NAMES),
    st.tuples(st.sampled_from([">", ">=", "<", "<="]), NAMES, NUMBERS),
    st.tuples(st.sampled_from(["=", "<>"]), NAMES, WORDS | NUMBERS | st.booleans()),
    st.tuples(st.just("between"), NAMES, BOUNDS).map(lambda leaf: (leaf[0], leaf[1], *leaf[2])),
    st.tuples(st.just("in"), NAMES, st.lists(WORDS, min_size=1, max_size=6), st.booleans()),
    st.tuples(st.sampled_from(sorted(_SEARCHES)), NAMES, WORDS, st.booleans()),
)


def _branches(terms: st.SearchStrategy[Term]) -> st.SearchStrategy[Term]:
    rows = st.lists(terms, min_size=2, max_size=4)
    return st.one_of(
        st.tuples(st.sampled_from(["and", "or"]), rows).map(lambda row: (row[0], *row[1])),
        st.tuples(st.just("not"), terms),
        st.tuples(st.just("same"), terms.filter(lambda term: term != ("truth", None)), st.booleans()),
    )


TERMS = st.recursive(_LEAVES, _branches, max_leaves=12)


def printed(term: Term, dice: random.Random) -> str:
    """`term` as SQL92, with random case, blanks and needless parentheses."""
    text = _bare(term, dice)
    return f"({text})" if dice.random() < 0.15 else text


def _bare(term: Term, dice: random.Random) -> str:
    kind, *parts = term
    if kind in ("and", "or"):
        word = dice.choice([kind, kind.upper()])
        return f"{_gap(dice)}{word}{_gap(dice)}".join(_grouped(part, dice) for part in parts)
    if kind == "not":
        return f"NOT{_gap(dice)}({printed(parts[0], dice)})"
    if kind == "same":
        return f"({printed(parts[0], dice)}) = {parts[1]}"
    if kind == "truth":
        return "NULL" if parts[0] is None else str(parts[0])
    name = parts[0]
    if kind == "is null":
        return f"{name} Is{_gap(dice)}Null"
    if kind == "between":
        return f"{name} between {_literal(parts[1])} AND {_literal(parts[2])}"
    if kind == "in":
        listed = f",{_gap(dice)}".join(map(_literal, parts[1]))
        return f"{name} {'' if parts[2] else 'NOT '}IN ({listed})"
    if kind in _SEARCHES:
        return f"{name}{'' if parts[2] else ' not'} {kind} {_literal(parts[1])}"
    return f"{name}{_gap(dice)}{kind}{_gap(dice)}{_literal(parts[1])}"


def _grouped(term: Term, dice: random.Random) -> str:
    text = printed(term, dice)
    return f"({text})" if term[0] in ("and", "or") else text


def _gap(dice: random.Random) -> str:
    return dice.choice([" ", "  ", "\n\t", " /* ' */ ", " -- =\n"])


def _literal(value: str | float) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def judged(term: Term, properties: dict[str, str]) -> Answer:
    """True, False, None for unknown, or NO_ANSWER."""
    kind, *parts = term
    if kind in ("and", "or"):
        return _judged_row(parts, properties, decisive=kind == "or")
    if kind in ("not", "same"):
        inner = judged(parts[0], properties)
        if not isinstance(inner, bool):
            return inner
        return not inner if kind == "not" else inner == parts[1]
    if kind == "truth":
        return None if parts[0] is None else bool(parts[0])
    text = properties.get(parts[0])
    if kind == "is null":
        return text is None
    if kind in _SEARCHES:
        return text is not None and parts[1] != "" and _SEARCHES[kind](text, parts[1]) == parts[2]
    if text is None:
        return None
    if kind == "in":
        return bool((text in parts[1]) == parts[2])
    if kind == "between":
        row = [(">=", parts[0], parts[1]), ("<=", parts[0], parts[2])]
        return _judged_row(row, properties, decisive=False)
    return _compared(kind, text, parts[1])


def _judged_row(terms: list[Term], properties: dict[str, str], decisive: bool) -> Answer:
    unknown = False
    for term in terms:
        answer = judged(term, properties)
        if answer == NO_ANSWER or answer is decisive:
            return answer
        unknown |= answer is None
    return None if unknown else not decisive


def _compared(sign: str, text: str, literal: str | float) -> bool | str:
    if isinstance(literal, str):
        return _SIGNS[sign](text, literal)
    if isinstance(literal, bool):
        return _SIGNS[sign](text.lower() == "true", literal)
    if isinstance(literal, int):
        # The literal -2147483648 is the minus of a number of 64 bits.
        bits = 32 if abs(literal) < 2**31 else 64
        fits = re.fullmatch(r"[+-]?\d+", text) and -(2 ** (bits - 1)) <= int(text) < 2 ** (bits - 1)
        return _SIGNS[sign](int(text), literal) if fits else NO_ANSWER
    fits = re.fullmatch(r"[+-]?\d+\.?\d*([eE][+-]?\d+)?", text)
    return _SIGNS[sign](float(text), literal) if fits else NO_ANSWER
