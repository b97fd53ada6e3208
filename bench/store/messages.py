"""The messages that are stored: as a Java client sends them, no two the same."""

from collections.abc import Sequence

from pocketmq.store.queues.consume_queue import ConsumeQueue

TOPIC = "OrdersTopic"
BORN_MS = 1_794_732_142_205

Draft = tuple[bytes, bytes]
"""Body and properties."""
Addressed = tuple[ConsumeQueue, bytes, bytes]
"""A draft and the queue it goes to."""


def key_of(number: int) -> str:
    return f"order{number}"


def drafts(count: int, body_bytes: int, first: int = 0) -> list[Draft]:
    """Messages number `first` and following. The unique key is that of a Java client: 20 digits for the process, 12 for the message."""
    return [
        (
            (b"%010d" % number * (body_bytes // 10 + 1))[:body_bytes],
            b"KEYS\x01%s\x02UNIQ_KEY\x017F000001129C4E0E2F2A%012X\x02WAIT\x01true\x02TAGS\x01TagA\x02"
            % (key_of(number).encode(), number),
        )
        for number in range(first, first + count)
    ]


def in_turns(queues: Sequence[ConsumeQueue], messages: Sequence[Draft], turn: int) -> list[list[Addressed]]:
    """The messages dealt to the queues one after the other, and cut into turns."""
    addressed = [(queues[number % len(queues)], *draft) for number, draft in enumerate(messages)]
    return [addressed[at : at + turn] for at in range(0, len(addressed), turn)]
