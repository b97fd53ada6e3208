"""What the author of a wrong expression probably meant. A hint is a half sentence, or empty when there is no good guess."""

from difflib import get_close_matches
from typing import Final

from pocketmq.model.sql92.tokens import END, FRACTION, KEYWORDS, NAME, ODD, TEXT, WHOLE, Token

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
_ODD_CHARACTERS = {
    **dict.fromkeys('"“”‘’', _QUOTES),
    **dict.fromkeys("+*/%^", "there is no arithmetic"),
    "-": _NO_ARITHMETIC,
    ".": _NAMES,
    "`": "write property names without quotes",
    "!": "for not equal use <>, for not use NOT",
    "&": "use AND",
    "|": "use OR",
    ";": "leave it out",
    "'": "this text is never closed",
}
_PAIRS = {"==": "use a single =", "=>": "use >=", "=<": "use <="}
"""By their second character the parser sees that they are wrong."""


def hint_for(text: str, token: Token) -> str:
    """What to write instead of `token`, which stands in `text` where it cannot stand."""
    if token.kind == END:
        return ""
    if token.kind == NAME:
        return _hint_for_name(token.image)
    if hint := _PAIRS.get(text[max(0, token.at - 1) : token.at + 1]):
        return hint
    if text.startswith("/*", token.at):
        return "this comment is never closed"
    if text.strip() == "*":
        return "for all messages use TRUE, or the type TAG"
    if token.kind == ODD and token.image.isalnum():
        return _NAMES
    return _ODD_CHARACTERS.get(token.image, "")


def _hint_for_name(name: str) -> str:
    word = name.upper()
    if word in _OTHER_DIALECTS:
        return _OTHER_DIALECTS[word]
    if len(word) <= _LONGEST_KEYWORD + 2 and (near := get_close_matches(word, KEYWORDS, 1)):
        return f"did you mean {near[0]}?"
    return ""


def hint_for_text(token: Token) -> str:
    """What to write where only a text in single quotes can stand."""
    return f"write '{token.image[:40]}'" if token.kind in (NAME, WHOLE, FRACTION) else ""


def found(token: Token) -> str:
    """`token` as an error names it."""
    if token.kind == END:
        return "the end"
    image = token.image if len(token.image) <= 40 else token.image[:37] + "..."
    return image if token.kind in (NAME, WHOLE, FRACTION, TEXT) or token.kind in KEYWORDS else repr(image)
