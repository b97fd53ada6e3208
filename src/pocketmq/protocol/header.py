"""What both header encodings carry, and their shared limits."""

from pocketmq.codes import Language

Header = tuple[int, dict[str, str] | None, str | None, int, int, int, Language]
"""code, ext fields, remark, flag, opaque, version, language."""

MAX_EXT_FIELDS = 512
"""More ext fields than any request has by far; a header with more is refused."""


def language_of(number: int) -> Language:
    """The language with this number; one that we do not know is another."""
    return Language(number) if 0 <= number <= max(Language) else Language.OTHER
