"""Records that have lost a part and do not show it: a record's checksum covers its body alone.

    | head, sizes | body …        | topic | properties … |
      sizes agree   checksum        └── text: what was lost of it is zeros

A crash may lose any sector of what was not synced, and a write that fails leaves off anywhere. What is lost reads as zeros: up to
the end of its sector, or of the record. In the head and in the lengths that makes sizes disagree, in the body the checksum is
wrong; in topic and properties it looks like text that goes on with zeros. Nobody could tell a message that really has zeros in
such a place from damage. So its properties begin a few bytes later, behind separators that say nothing:

    | … properties: name 1 va 0 | lue 2 |            the zero ends a sector
    | … properties: 2 name 1 va | 0 lue 2 |          and now it does not

What is full of zeros, or ends in one, is refused.
"""

from typing import Final

from pocketmq.model.message import StoredMessage
from pocketmq.model.properties import VALUE_END

SECTOR_BYTES: Final = 512
_LENGTH_BYTES: Final = 2
_SEPARATOR: Final = VALUE_END.encode()


def looks_cut(text: bytes, at: int) -> bool:
    """Whether `text`, which lies at `at` of its file, ends in a zero, or what one sector holds of it does."""
    if b"\0" not in text:
        return False
    first_end = SECTOR_BYTES - at % SECTOR_BYTES
    return text[-1] == 0 or any(text[end - 1] == 0 for end in range(first_end, len(text), SECTOR_BYTES))


def moved_on(properties: bytes, at: int) -> bytes | None:
    """The same properties, which lie at `at` of their file, so that they do not look cut there; None when that cannot be."""
    if properties.endswith(b"\0"):
        return None
    sector_ends = SECTOR_BYTES - 1 - at
    for count in range(1, SECTOR_BYTES):
        if 0 not in properties[(sector_ends - count) % SECTOR_BYTES :: SECTOR_BYTES]:
            return _SEPARATOR * count + properties
    return None


def has_lost_part(message: StoredMessage, at: int) -> bool:
    """Whether the record of `message`, which begins at `at` of its file, has lost a part that its checksum does not cover."""
    properties_at = at + message.size - len(message.raw_properties)
    if looks_cut(message.raw_properties, properties_at):
        return True
    topic = message.topic.encode()
    return looks_cut(topic, properties_at - _LENGTH_BYTES - len(topic))
