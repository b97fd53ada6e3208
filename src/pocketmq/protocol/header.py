"""What both header encodings carry, and their shared limits."""

from typing import Annotated

import msgspec

from pocketmq.codes import Language

Header = tuple[int, dict[str, str] | None, str | None, int, int, int, Language]
"""code, ext fields, remark, flag, opaque, version, language."""

MAX_EXT_FIELDS = 512
"""More ext fields than any request has by far; a header with more is refused."""

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Java's numbers. What does not fit is refused at the edge, so nothing behind it can overflow."""

# Plain tables, once per header: an enum's own look-ups take ten times as long.
_OTHER = Language.OTHER
_LANGUAGES: dict[str | int | None, Language] = {
    **{member.name: member for member in Language},
    **{int(member): member for member in Language},
}
LANGUAGE_NAMES = {member: member.name for member in Language}


def language_of(sent: str | int | None) -> Language:
    """The language with this name or number; one that we do not know is another."""
    return _LANGUAGES.get(sent, _OTHER)
