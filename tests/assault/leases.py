"""Scenes: the process is killed while members of a group lease and acknowledge messages (POP)."""

import random
from collections.abc import Callable
from functools import partial
from threading import Event, Thread
from time import monotonic
from types import TracebackType
from typing import Final, Self

from tests.assault.stage import DRAIN_S, QUICK, TOPIC, Load, Stage

from pocketmq import SimpleConsumer, StoredMessage
from pocketmq.errors import PocketMQError

GROUP: Final = "assault_leases"
MEMBERS: Final = 3
INVISIBLE_S: Final = 4.0
KILLS: Final = (("write", "kill"), ("write", "half-kill"), ("sync", "kill"))
KILLS_EACH: Final = 3


class Members:
    """Members in threads, until the end of a `with`. `acknowledged` has the numbers of acks that were answered in time;
    `unknown` those of all other acks, which may count or not.
    """

    def __init__(self, name_server: str) -> None:
        self.acknowledged: set[int] = set()
        self.unknown: set[int] = set()
        self.returned: set[str] = set()
        """Messages that came again after their ack was answered."""
        self._done: set[str] = set()
        self.received = 0
        self._stop = Event()
        self._consumers = [
            SimpleConsumer(name_server, group=GROUP, instance_name=f"member_{at}", start_at="first", **QUICK)
            for at in range(MEMBERS)
        ]
        self._threads = [Thread(target=self._consume, args=(one,), daemon=True) for one in self._consumers]

    def __enter__(self) -> Self:
        for consumer, thread in zip(self._consumers, self._threads, strict=True):
            consumer.start()
            consumer.subscribe(TOPIC)
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for consumer, thread in zip(self._consumers, self._threads, strict=True):
            thread.join(30)
            consumer.stop()

    def has(self, count: int) -> bool:
        return len(self.acknowledged) >= count

    def _consume(self, consumer: SimpleConsumer) -> None:
        while not self._stop.is_set():
            try:
                self._handle(consumer, consumer.receive(max_messages=16, invisible_s=INVISIBLE_S, wait_s=1))
            except PocketMQError:  # the broker is gone; what is leased comes again
                self._stop.wait(0.05)

    def _handle(self, consumer: SimpleConsumer, messages: list[StoredMessage]) -> None:
        numbers = [int(message.body[:12]) for message in messages]
        ids = [message.message_id for message in messages]  # a send that failed is stored, and sent again
        self.received += len(numbers)
        self.returned |= self._done.intersection(ids)
        began = monotonic()
        try:
            if messages:
                consumer.ack(messages)
        except PocketMQError:
            self.unknown.update(numbers)
            raise
        if monotonic() - began < INVISIBLE_S / 2:
            self._done.update(ids)
            self.acknowledged.update(numbers)
        else:
            self.unknown.update(numbers)


def killed_with_leases(flush: str, stage: Stage) -> None:
    dice = random.Random(f"{stage.seed}/leases/{flush}")
    stage.serve("--flush", flush)
    with Members(stage.name_server) as members:
        with stage.load() as load:
            for operation, action in KILLS * KILLS_EACH:
                skip = dice.randrange(200) if operation == "write" else dice.randrange(3)
                with stage.injector.fault(operation, action, path="commitlog", skip=skip, times=1):
                    stage.until(lambda: stage.server.code is not None, f"the {action} at a {operation}", 60)
                stage.start_again()
                wanted = len(members.acknowledged) + 50
                stage.until(partial(members.has, wanted), f"acks after the {action} at a {operation}")
        _drain(stage, members, load)
    stage.facts.append(
        f"{len(KILLS) * KILLS_EACH} kills; {len(members.acknowledged)} leased messages acknowledged, "
        f"{members.received - len(members.acknowledged)} received again"
    )
    stage.stop()


def _drain(stage: Stage, members: Members, load: Load) -> None:
    """Every message that was sent is acknowledged once; none that was acknowledged came again."""
    deadline = monotonic() + DRAIN_S
    while (load.acknowledged - members.acknowledged - members.unknown) and monotonic() < deadline:
        Event().wait(0.1)
    lost = sorted(load.acknowledged - members.acknowledged - members.unknown)
    stage.expect(not lost, f"{len(lost)} of {len(load.acknowledged)} messages were never acknowledged: {lost[:5]}")
    again = sorted(members.returned)
    stage.expect(not again, f"{len(again)} messages came again after their ack was answered: {again[:5]}")


SCENES: Final[dict[str, Callable[[Stage], None]]] = {
    f"killed at writes and syncs of the log while messages are leased ({flush} flush)": partial(
        killed_with_leases, flush
    )
    for flush in ("async", "sync")
}
