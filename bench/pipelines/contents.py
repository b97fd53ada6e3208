"""What topics are filled with: bodies of about 200 bytes that suit the pipelines."""

import random
from collections.abc import Callable, Iterator
from typing import Final

from pocketmq import Admin, Message, Producer
from pocketmq.protocol.trace_text import Outcome, Pub, SubAfter, SubBefore, Trace, TracedType, encode_trace

ORDERS, EVENTS, TRACES = "orders", "events", "traces"
QUEUES: Final = 8
BODY_BYTES: Final = 200
EVENT_SCHEMA: Final = "id string NOT NULL, city string NOT NULL, amount double, at timestamp, note string"
DEAD_ONE_IN: Final = 100
SAID_EVERY: Final = 1_000_000
_CHUNK: Final = 2_000
_T0_MS: Final = 1_794_700_800_000


def fill(name_server: str, topic: str, messages: int, say: Callable[[str], None]) -> None:
    """A topic with so many messages, in all its queues."""
    with Admin(name_server) as admin:
        if not admin.topics.exists(topic):
            admin.topics.create(topic, queues=QUEUES)
        queues = sorted(one.queue for one in admin.topics.describe(topic).queues)
    made = _MADE[topic](messages)
    with Producer(name_server, group="bench") as producer:
        for number, start in enumerate(range(0, messages, _CHUNK)):
            chunk = [message for _, message in zip(range(min(_CHUNK, messages - start)), made, strict=False)]
            producer.send_many(chunk, queue=queues[number % len(queues)])
            if start % SAID_EVERY == 0:
                say(f"filling {topic}: {start:,} of {messages:,} messages")


def _orders(count: int) -> Iterator[Message]:
    """Bodies that cannot be compressed, with keys and tags."""
    dice = random.Random(7)
    for at in range(count):
        yield Message(ORDERS, dice.randbytes(BODY_BYTES), tags=f"Tag{at % 5}", keys=f"order{at}")


def _events(count: int) -> Iterator[Message]:
    """JSON, of which some breaks the contract."""
    note = "n" * 100
    for at in range(count):
        amount = '"a lot"' if at % DEAD_ONE_IN == 0 else f"{at % 1000}.5"
        text = f'{{"id":"{at}","city":"city{at % 50}","amount":{amount},"at":"2026-11-15T12:00:00Z","note":"{note}"}}'
        yield Message(EVENTS, text.encode(), keys=f"event{at}")


def _traces(count: int) -> Iterator[Message]:
    """What clients tell of a message: sent, begun, done."""
    for at in range(count):
        record = _STEPS[at % len(_STEPS)](at // len(_STEPS))
        yield Message(TRACES, encode_trace([record]), keys=f"trace{at}")


_STEPS: Final[tuple[Callable[[int], Trace], ...]] = (
    lambda at: Pub(
        _T0_MS + at, "r", "till", "orders", f"{at:032X}", "t", f"order{at}", "10.0.0.1:10911", 200, 3, TracedType.NORMAL, f"{at:032X}", True
    ),
    lambda at: SubBefore(_T0_MS + at + 5, "r", "shipping", f"request{at:08}", f"{at:032X}", 0, f"order{at}"),
    lambda at: SubAfter(
        f"request{at:08}", f"{at:032X}", 2, True, f"order{at}", Outcome.SUCCESS, _T0_MS + at + 7, "shipping"
    ),
)  # fmt: skip
_MADE: Final = {ORDERS: _orders, EVENTS: _events, TRACES: _traces}
