"""The body of SEND_BATCH_MESSAGE: many messages in one request.

    | size 4 | magic 4 = 0 | crc 4 = 0 | flag 4 | body length 4 | body … | properties length 2 | properties … |   repeated
      size includes its own field

Topic, queue and sysFlag of the request apply to all items. Magic and CRC are always 0: the broker computes the CRC when it stores
the message. An item is a plain tuple: one is created per message on both sides, and a class would double the cost. Properties stay
encoded, as in a record.
"""

import struct
from collections.abc import Iterable
from typing import Final

from pocketmq.errors import InvalidMessage, ProtocolError
from pocketmq.model.properties import MAX_BYTES as MAX_PROPERTIES_BYTES

BatchItem = tuple[int, bytes, bytes]
"""Flag, body, encoded properties text."""

MAX_ITEMS: Final = 65_536
"""The most items of a batch: more do not fit into the 4 MiB that a broker accepts."""

_HEAD = struct.Struct(">iqii")
_READ_HEAD = struct.Struct(">i8xii")
_SHORT = struct.Struct(">h")
_HEAD_SIZE = 20
_FIXED_SIZE = 22


def encode_batch(items: Iterable[BatchItem]) -> bytes:
    """Encode `items`. InvalidMessage names an item that does not fit."""
    parts: list[bytes] = []
    pack_head, pack_short = _HEAD.pack, _SHORT.pack
    try:
        for flag, body, properties in items:
            body_size, properties_size = len(body), len(properties)
            parts += (
                pack_head(_FIXED_SIZE + body_size + properties_size, 0, flag, body_size),
                body,
                pack_short(properties_size),
                properties,
            )
    except struct.error as error:
        raise InvalidMessage(f"item {len(parts) // 4} of the batch cannot be encoded: {error}") from None
    return b"".join(parts)


def decode_batch(body: bytes, max_items: int = MAX_ITEMS) -> list[BatchItem]:
    """Decode the items. ProtocolError names the first one that is truncated, has a wrong size, or exceeds `max_items`."""
    items: list[BatchItem] = []
    read_head = _READ_HEAD.unpack_from
    at, end = 0, len(body)
    try:
        while at < end:
            size, flag, body_size = read_head(body, at)
            body_at = at + _HEAD_SIZE
            properties_at = body_at + body_size + 2
            item_end = at + size
            if body_size < 0 or properties_at > item_end or item_end > end or len(items) == max_items:
                break
            properties_size = body[properties_at - 2] << 8 | body[properties_at - 1]
            if properties_at + properties_size != item_end or properties_size > MAX_PROPERTIES_BYTES:
                break
            items.append((flag, body[body_at : properties_at - 2], body[properties_at:item_end]))
            at = item_end
    except struct.error as error:
        raise ProtocolError(f"item {len(items)} of the batch, at byte {at} of {end}: {error}") from None
    if at < end:
        raise _failure(body, at, len(items), max_items)
    return items


def _failure(body: bytes, at: int, number: int, max_items: int) -> ProtocolError:
    """The error of the item at `at`. Separate, so that the loop above stays fast."""
    if number == max_items:
        return ProtocolError(f"the batch has more than {max_items} items")
    where = f"item {number} of the batch, at byte {at} of {len(body)}"
    size, _, body_size = _READ_HEAD.unpack_from(body, at)
    left = len(body) - at
    if not _FIXED_SIZE <= size <= left:
        return ProtocolError(f"{where}: size {size} is not between {_FIXED_SIZE} and {left}")
    if not 0 <= body_size <= size - _FIXED_SIZE:
        return ProtocolError(f"{where}: a body of {body_size} bytes in an item of {size}")
    (properties_size,) = _SHORT.unpack_from(body, at + _HEAD_SIZE + body_size)
    bytes_left = size - _FIXED_SIZE - body_size
    return ProtocolError(f"{where}: properties of {properties_size} bytes, but the item has {bytes_left} bytes left")
