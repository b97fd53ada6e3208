"""Stored messages for tests of the consumer's rules."""

from pocketmq.model.message import StoredMessage
from pocketmq.model.properties import format_properties
from pocketmq.protocol.record import decode_record, encode_record


def stored(
    offset: int = 0,
    body: bytes = b"body",
    *,
    topic: str = "Orders",
    times: int = 0,
    properties: dict[str, str] | None = None,
    sys_flag: int = 0,
) -> StoredMessage:
    """A message of queue 0 as a pull brings it."""
    record = encode_record(
        topic.encode(),
        0,
        offset,
        1000 + offset,
        body,
        format_properties(properties or {}).encode(),
        7,
        sys_flag,
        1,
        bytes(8),
        2,
        bytes(8),
        times,
    )
    return decode_record(record)


def run_of(start: int, end: int) -> list[StoredMessage]:
    """Messages with the offsets from `start` to before `end`."""
    return [stored(offset) for offset in range(start, end)]
