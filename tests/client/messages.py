"""Stored messages for tests of the consumer's rules."""

from pocketmq.model.message import StoredMessage
from pocketmq.model.properties import format_properties


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
    return StoredMessage(
        topic=topic,
        queue_id=0,
        queue_offset=offset,
        log_offset=1000 + offset,
        body=body,
        raw_properties=format_properties(properties or {}).encode(),
        flag=7,
        sys_flag=sys_flag,
        born_ms=1,
        packed_born_host=bytes(8),
        store_ms=2,
        packed_store_host=bytes(8),
        reconsume_times=times,
        prepared_offset=0,
        body_crc=0,
        size=100 + len(body),
    )


def run_of(start: int, end: int) -> list[StoredMessage]:
    """Messages with the offsets from `start` to before `end`."""
    return [stored(offset) for offset in range(start, end)]
