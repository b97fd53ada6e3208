"""Scenes: descriptors, threads and memory run out for a while; the wall clock steps ahead and back."""

import errno
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Final

from tests.assault.stage import QUICK, Load, Stage

from pocketmq import Message, Producer, PushConsumer, StoredMessage, TransactionState

HOUR_MS: Final = 3_600_000
SHORTAGE_S: Final = 3.0
RETENTION_S: Final = 12.0
"""Retention looks every ten seconds."""


@contextmanager
def limited(pid: int, which: int, soft: int) -> Iterator[None]:
    """A limit of a running process, lowered for a while."""
    before = resource.prlimit(pid, which)
    resource.prlimit(pid, which, (soft, before[1]))
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # it has ended meanwhile
            resource.prlimit(pid, which, before)


def no_descriptors(stage: Stage) -> None:
    stage.serve()
    with stage.load():
        used = len(list(Path(f"/proc/{stage.server.pid}/fd").iterdir()))
        with limited(stage.server.pid, resource.RLIMIT_NOFILE, used - 2):
            stage.during(SHORTAGE_S)
    stage.expect(stage.log_bytes < 2_000_000, f"the log has grown to {stage.log_bytes} bytes")
    stage.stop()


def no_threads(stage: Stage) -> None:
    """None can be started when the server starts, and later when its work needs them."""
    with stage.injector.fault("thread", "fail", errno.EAGAIN, times=6):
        stage.serve("--flush", "sync")
        with stage.load():
            stage.during(1)
    with stage.load(first=1_000_000), stage.injector.fault("thread", "fail", errno.EAGAIN):
        stage.during(SHORTAGE_S)
    stage.stop()


def no_memory(stage: Stage) -> None:
    """No more address space: sends may fail, and the process may end; acknowledged messages must survive."""
    stage.serve()
    with stage.load() as load:
        with limited(stage.server.pid, resource.RLIMIT_AS, _address_space(stage.server.pid) + 2_000_000):
            stage.during(SHORTAGE_S)
        if stage.server.code is not None:
            stage.facts.append(f"the server ended with {stage.server.code} and was started again")
            stage.start_again()
        stage.until_sent(load, 100, "sends with memory again")
        stage.expect(stage.log_bytes < 5_000_000, f"the log has grown to {stage.log_bytes} bytes")
        with limited(stage.server.pid, resource.RLIMIT_AS, _address_space(stage.server.pid) + 1_000_000):
            stage.during(1)
            began = monotonic()
            code = stage.server.terminate(20)
        stage.facts.append(f"SIGTERM ended it with {code} after {monotonic() - began:.1f} s")
        stage.expect(code == 0, f"SIGTERM ended it with {code}: {stage.log_tail()}")
        stage.start_again()
    stage.stop()


def clock_ahead_for_a_delay(stage: Stage) -> None:
    """A delay of 10 s takes 10 s, although the clock was temporarily an hour ahead."""
    stage.serve()
    arrived: list[float] = []
    consumer = PushConsumer(stage.name_server, group="delays", start_at="first", rebalance_ms=1_000, **QUICK)
    consumer.subscribe("Delayed", lambda message: arrived.append(monotonic()))
    with Producer(stage.name_server, **QUICK) as producer:
        began = monotonic()
        producer.send("Delayed", b"level", delay_level=3)
        producer.send("Delayed", b"timed", delay_ms=10_000)
        with consumer:
            stage.during(1)
            with stage.injector.clock_step(HOUR_MS):
                stage.during(3)
            stage.until(lambda: len(arrived) == 2, "the delayed messages", 30)
    waits = [at - began for at in arrived]
    stage.facts.append(f"delays of 10 s took {min(waits):.1f} and {max(waits):.1f} s")
    stage.expect(min(waits) > 9.5, f"a delay of 10 s took {min(waits):.1f} s")
    stage.stop()


class _Undecided:
    """Leaves transactions open until the broker checks them."""

    def __init__(self) -> None:
        self.asked = Event()

    def execute(self, message: Message, argument: object) -> TransactionState:
        return TransactionState.UNKNOWN

    def check(self, message: StoredMessage) -> TransactionState:
        self.asked.set()
        return TransactionState.COMMIT


def clock_ahead_for_a_transaction(stage: Stage) -> None:
    """An open transaction is checked, although the clock was temporarily 80 hours ahead."""
    stage.serve(settings=("transactionTimeOut=2000", "transactionCheckInterval=1000"))
    listener, handled = _Undecided(), Event()
    consumer = PushConsumer(stage.name_server, group="decided", start_at="first", rebalance_ms=1_000, **QUICK)
    consumer.subscribe("Decided", lambda message: handled.set())
    with Producer(stage.name_server, group="PG_decider", listener=listener, **QUICK) as producer, consumer:
        producer.send_in_transaction(Message("Decided", b"open"))
        with stage.injector.clock_step(80 * HOUR_MS):
            stage.during(3)
        stage.until(listener.asked.is_set, "the check-back", 60)
        stage.until(handled.is_set, "the committed message", 30)
    stage.stop()


def clock_ahead_for_retention(stage: Stage) -> None:
    """Unread messages are kept, although the clock was four days ahead at an hour of deletion."""
    stage.serve(settings=("mappedFileSizeCommitLog=1048576", f"deleteWhen={datetime.now().hour:02d}"))
    with Load(stage.name_server, consuming=False) as load:
        stage.until(lambda: len(load.acknowledged) > 10_000, "some log files", 60)
        load.stop_sending()
        with stage.injector.clock_step(96 * HOUR_MS):
            stage.during(RETENTION_S)
        load.begin_consuming()
        stage.drain(load)
        stage.facts.append(f"{len(load.acknowledged)} messages kept")
    stage.stop()


def _address_space(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()


SCENES: Final[dict[str, Callable[[Stage], None]]] = {
    "no descriptors for 3 s": no_descriptors,
    "no threads at the start, and for 3 s": no_threads,
    "no memory for 3 s, and SIGTERM without memory": no_memory,
    "the clock an hour ahead for 3 s, and delays of 10 s": clock_ahead_for_a_delay,
    "the clock 80 hours ahead for 3 s, and an open transaction": clock_ahead_for_a_transaction,
    "the clock 4 days ahead at the hour of deletion, and unread messages": clock_ahead_for_retention,
}
