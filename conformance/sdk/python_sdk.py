"""Acts with the official Python client: prints the flaws of each act as a line of JSON.

python -m conformance.sdk.python_sdk HOST:PORT
"""

import json
import queue
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)

NORMAL, FIFO, DELAY, TRANSACTION = "SdkNormal", "SdkFifo", "SdkDelay", "SdkTransaction"
WAIT_S = 40.0
POLL_S = 5
SQL = 2

Flaws = list[str]


class Stage:
    def __init__(self, endpoint: str) -> None:
        self.configuration = ClientConfiguration(endpoint, Credentials())
        self.number = 0

    def group(self, word: str) -> str:
        """The group of an act. Groups are created before, because only an administrator can make one ordered."""
        return f"SdkPython{word}"

    def message(self, topic: str, body: str, **fields: Any) -> Message:
        made = Message()
        made.topic, made.body = topic, body.encode()
        for name, value in fields.items():
            setattr(made, name, value)
        return made

    @contextmanager
    def producer(self, *topics: str, checker: Any = None) -> Iterator[Producer]:
        made = Producer(self.configuration, list(topics), checker=checker)
        made.startup()
        try:
            yield made
        finally:
            made.shutdown()

    @contextmanager
    def simple(self, group: str, topic: str, expression: FilterExpression | None = None) -> Iterator[SimpleConsumer]:
        made = SimpleConsumer(self.configuration, group, {topic: expression or FilterExpression()}, POLL_S)
        made.startup()
        try:
            yield made
        finally:
            made.shutdown()

    @contextmanager
    def push(self, group: str, topic: str, consume: Callable[[Message], bool]) -> Iterator[None]:
        class Listener(MessageListener):  # type: ignore[misc]
            def consume(self, message: Message) -> ConsumeResult:
                return ConsumeResult.SUCCESS if consume(message) else ConsumeResult.FAILURE

        made = PushConsumer(self.configuration, group, Listener(), {topic: FilterExpression()})
        made.startup()
        try:
            yield
        finally:
            made.shutdown()


def receive(consumer: SimpleConsumer, bodies: set[str], *, ack: bool = True, invisible_s: int = 20) -> list[Message]:
    """Receive until all of these bodies are there, or the time is over."""
    found: list[Message] = []
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until and {one.body.decode() for one in found if one.body.decode() in bodies} != bodies:
        for one in received(consumer, invisible_s):
            if ack:
                consumer.ack(one)
            if one.body.decode() in bodies:
                found.append(one)
    return found


def same(what: str, found: object, wanted: object) -> Flaws:
    return [] if found == wanted else [f"{what} is {found!r} instead of {wanted!r}"]


def bodies_of(found: list[Message]) -> list[str]:
    return sorted(one.body.decode() for one in found)


# acts


def properties(stage: Stage) -> Flaws:
    with stage.producer(NORMAL) as producer, stage.simple(stage.group("A"), NORMAL) as consumer:
        sent = stage.message(NORMAL, "properties", tag="red", keys="k1")
        sent.add_property("colour", "blue")
        receipt = producer.send(sent)
        found = receive(consumer, {"properties"})
        if not found:
            return ["the message was not received"]
        one = found[0]
        return [
            *same("tag", one.tag, "red"),
            *same("keys", set(one.keys), {"k1"}),
            *same("properties", dict(one.properties), {"colour": "blue"}),
            *same("id", one.message_id, receipt.message_id),
            *same("attempt", one.delivery_attempt, 1),
            *same("corrupted", one.corrupted, False),
        ]


def filters(stage: Stage) -> Flaws:
    tags, sql = FilterExpression("red || blue"), FilterExpression("size > 3", SQL)
    with (
        stage.producer(NORMAL) as producer,
        stage.simple(stage.group("B"), NORMAL, tags) as by_tag,
        stage.simple(stage.group("C"), NORMAL, sql) as by_sql,
    ):
        for tag, size in (("red", "1"), ("green", "5"), ("blue", "9")):
            sent = stage.message(NORMAL, f"filter {tag}", tag=tag)
            sent.add_property("size", size)
            producer.send(sent)
        return [
            *same("by tag", bodies_of(receive(by_tag, {"filter red", "filter blue"})), ["filter blue", "filter red"]),
            *same(
                "by SQL", bodies_of(receive(by_sql, {"filter green", "filter blue"})), ["filter blue", "filter green"]
            ),
        ]


def returning(stage: Stage) -> Flaws:
    with stage.producer(NORMAL) as producer, stage.simple(stage.group("D"), NORMAL) as consumer:
        producer.send(stage.message(NORMAL, "returning"))
        (first,) = receive(consumer, {"returning"}, ack=False, invisible_s=10)[:1] or [None]
        if first is None:
            return ["the message was not received"]
        (second,) = receive(consumer, {"returning"}, ack=False)[:1] or [None]
        if second is None:
            return ["the message did not return"]
        consumer.change_invisible_duration(second, 30)
        consumer.ack(second)
        return [*same("attempt", second.delivery_attempt, 2), *same("id", second.message_id, first.message_id)]


def failing_push(stage: Stage) -> Flaws:
    attempts: queue.Queue[int] = queue.Queue()

    def consume(message: Message) -> bool:
        if message.body == b"failing":
            attempts.put(message.delivery_attempt)
            return bool(message.delivery_attempt > 1)
        return True

    with stage.producer(NORMAL) as producer, stage.push(stage.group("E"), NORMAL, consume):
        producer.send(stage.message(NORMAL, "failing"))
        try:
            return same("attempts", [attempts.get(timeout=WAIT_S) for _ in range(2)], [1, 2])
        except queue.Empty:
            return ["the message was not consumed twice"]


def fifo_push(stage: Stage) -> Flaws:
    seen: queue.Queue[str] = queue.Queue()
    failed: set[str] = set()

    def consume(message: Message) -> bool:
        body = message.body.decode()
        if body == "fifo 2" and body not in failed:
            failed.add(body)
            return False
        if body.startswith("fifo"):
            seen.put(body)
        return True

    wanted = [f"fifo {number}" for number in range(6)]
    with stage.producer(FIFO) as producer, stage.push(stage.group("Fifo"), FIFO, consume):
        for body in wanted:
            producer.send(stage.message(FIFO, body, message_group="order-1"))
        try:
            return same("order", [seen.get(timeout=WAIT_S) for _ in wanted], wanted)
        except queue.Empty:
            return ["not all messages were consumed"]


def delayed(stage: Stage) -> Flaws:
    with stage.producer(DELAY) as producer, stage.simple(stage.group("F"), DELAY) as consumer:
        due = int(time.time()) + 6
        recalled = producer.send(stage.message(DELAY, "recalled", delivery_timestamp=due))
        producer.send(stage.message(DELAY, "delayed", delivery_timestamp=due))
        producer.recall_message(DELAY, recalled.recall_handle)
        found = receive(consumer, {"delayed"})
        early = [one for one in found if time.time() < due]
        more = receive_once(consumer)
        return [*same("bodies", bodies_of(found), ["delayed"]), *same("early", early, []), *same("recalled", more, [])]


def receive_once(consumer: SimpleConsumer) -> list[str]:
    return [one.body.decode() for one in received(consumer, 20)]


def received(consumer: SimpleConsumer, invisible_s: int) -> list[Message]:
    """Apache's proxy fails until it has the settings of the client, which does not wait for that."""
    until = time.monotonic() + POLL_S
    while True:
        try:
            return consumer.receive(32, invisible_s) or []
        except Exception as error:  # the SDK has many kinds
            if '"settings" is null' not in str(error) or time.monotonic() > until:
                raise


def transactions(stage: Stage) -> Flaws:
    class Checker(TransactionChecker):  # type: ignore[misc]
        def check(self, message: Message) -> TransactionResolution:
            return TransactionResolution.COMMIT

    with (
        stage.producer(TRANSACTION, checker=Checker()) as producer,
        stage.simple(stage.group("G"), TRANSACTION) as consumer,
    ):
        for body, end in (("committed", "commit"), ("rolled back", "rollback"), ("checked", "")):
            transaction = producer.begin_transaction()
            producer.send(stage.message(TRANSACTION, body), transaction)
            if end:
                getattr(transaction, end)()
        found = bodies_of(receive(consumer, {"committed", "checked"}))
        found = sorted(
            set(found)
        )  # Apache's broker may check a transaction that is just committed, and deliver it twice
        more = set(receive_once(consumer)) - {"committed"}
        return [*same("bodies", found, ["checked", "committed"]), *same("rolled back", more, set())]


def refusals(stage: Stage) -> Flaws:
    found = []
    with stage.producer(NORMAL) as producer:
        for body, fields in (("wrong", {"topic": DELAY}), ("unknown", {"topic": "SdkUnknown"})):
            try:
                producer.send(stage.message(fields["topic"], body))
            except Exception:  # the SDK has many kinds
                continue
            found.append(f"the message {body!r} was accepted")
    return found


def empty_receive(stage: Stage) -> Flaws:
    with stage.simple(stage.group("H"), DELAY) as consumer:
        receive_once(consumer)
        began = time.monotonic()
        found = receive_once(consumer)
        took_s = time.monotonic() - began
        slow = [] if POLL_S - 1 < took_s < POLL_S + 3 else [f"it took {took_s:.1f} s"]
        return [*same("messages", found, []), *slow]


ACTS: dict[str, Callable[[Stage], Flaws]] = {
    "properties, keys and ids of a message": properties,
    "filters by tag and SQL": filters,
    "a message returns, its lease is changed, and it is acknowledged": returning,
    "a push consumer gets a failed message again": failing_push,
    "a push consumer of a FIFO group keeps the order": fifo_push,
    "delayed and recalled messages": delayed,
    "transactions: commit, rollback, check-back": transactions,
    "a wrong type and an unknown topic are refused": refusals,
    "a receive without messages waits": empty_receive,
}


def main(endpoint: str) -> None:
    stage = Stage(endpoint)
    for check, act in ACTS.items():
        try:
            flaws = act(stage)
        except Exception as error:  # of the SDK: the next act may still pass
            flaws = [f"{type(error).__name__}: {error}"]
        print(json.dumps({"check": check, "flaws": flaws}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
