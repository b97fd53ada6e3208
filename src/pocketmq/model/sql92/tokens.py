"""The words of an expression.

    name       a letter, _ or $, then also digits; upper and lower case differ
    keyword    AND, Between, is …; case does not matter
    whole      0, 42, 42L
    fraction   4.2, .5, 5., 1e3
    text       'it''s'
    symbol     = <> > >= < <= ( ) , + -
    odd        one character that begins none of these

Blanks, comments from -- to the end of the line, and comments between /* and */ part words and mean nothing.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

NAME: Final = "name"
WHOLE: Final = "whole"
FRACTION: Final = "fraction"
TEXT: Final = "text"
ODD: Final = "odd"
END: Final = "end"

KEYWORDS: Final = frozenset(
    {"AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE", "CONTAINS", "STARTSWITH", "ENDSWITH"}
)

# Every alternative is linear: a quote or comment that never closes is looked at once, and then it is an error.
_WORD = re.compile(
    r"""
      (?P<blank>    [ \t\n\r\f]+ | --[^\n\r]* | /\*.*?\*/ )
    | (?P<name>     [A-Za-z_$][A-Za-z0-9_$]* )
    | (?P<fraction> (?: [0-9]+\.[0-9]* | \.[0-9]+ ) (?: [eE][+-]?[0-9]+ )? | [0-9]+[eE][+-]?[0-9]+ )
    | (?P<whole>    [0-9]+[lL]? )
    | (?P<text>     '(?: [^'] | '' )*+' )
    | (?P<symbol>   <> | >= | <= | [=><(),+-] )
    | (?P<odd>      . )
    """,
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    """A word, and where it begins. `kind` of a keyword is its upper case, of a symbol the symbol itself."""

    kind: str
    image: str
    at: int


def scan(text: str) -> Iterator[Token]:
    """The words of `text`, one at a time, and at last one of kind END."""
    for match in _WORD.finditer(text):
        kind, image, at = match.lastgroup, match[0], match.start()
        if kind == "blank":
            continue
        if kind == "symbol":
            yield Token(image, image, at)
        elif kind == NAME and (keyword := image.upper()) in KEYWORDS:
            yield Token(keyword, image, at)
        else:
            yield Token(kind or ODD, image, at)
    yield Token(END, "", len(text))


def text_of(token: Token) -> str:
    """What the quotes of a text hold."""
    return token.image[1:-1].replace("''", "'")
