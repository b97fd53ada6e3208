"""A broker as far as waiting messages are concerned: a store on a disk in memory, with delayed and timed delivery.

It saves its progress on request, ends cleanly or by a crash, and continues from what was saved.
"""

from collections.abc import Callable

import msgspec
from tests.store.kit import HOST, messages_in
from tests.store.open_store import OpenStore

from pocketmq.broker.delivery.delays import Delays
from pocketmq.broker.delivery.forwarding import ForwardLimits
from pocketmq.broker.delivery.timer_progress import TimerProgress
from pocketmq.broker.delivery.timers import TimerLimits, Timers
from pocketmq.broker.messages import Appender, Draft, StoredPosition
from pocketmq.broker.settings import BrokerSettings, SettingsInUse, TimerSettings
from pocketmq.model.message import StoredMessage
from pocketmq.protocol.bodies.topics import DelayOffsets
from pocketmq.testing import FakeClock, FaultyFiles
from pocketmq.testing.disk.model import Survives

MOVES = ForwardLimits(batch_messages=4)
"""Small batches, so that a few messages make several."""


class TickingClock(FakeClock):
    """A clock by which every reading takes some time, as if work was done between two readings."""

    def __init__(self, look_ms: int) -> None:
        super().__init__()
        self._look_ms = look_ms

    def monotonic(self) -> float:
        self.advance_ms(self._look_ms)
        return super().monotonic()


class Life:
    """From one start to the next. `saved` is the content of the tables on the disk."""

    def __init__(
        self,
        opened: OpenStore | None = None,
        saved: dict[str, bytes] | None = None,
        forwards: ForwardLimits = MOVES,
        timer: TimerSettings | None = None,
        max_waiting: int = 10_000,
    ) -> None:
        self.opened = opened or OpenStore.small(prepared_files=60)
        self.store, self.clock = self.opened.store, self.opened.clock
        self.settings = SettingsInUse(BrokerSettings(timer=timer or TimerSettings()))
        self.appender = Appender(self.store, self.settings, self.clock)
        self.topics: set[str] = set()
        """Those that an administrator has made. The store has queues for others, too, that were sent to."""
        self.delays = Delays(self.store, self.appender, self.topics, self.clock, forwards)
        self.limits = TimerLimits(forwards=forwards, max_waiting=max_waiting)
        self.timers = Timers(self.store, self.appender, self.topics, self.settings, self.clock, self.limits)
        self.saved = dict(saved or {})
        delayed = self.saved.get("delayOffset.json")
        self.delays.load(DelayOffsets.decode(delayed) if delayed else None)
        if "timers.json" in self.saved:
            self.timers.load(TimerProgress.parse(self.saved["timers.json"]))

    # using it

    def send(
        self, body: bytes = b"body", topic: str = "T", queue_id: int = 0, **properties: str | int
    ) -> StoredPosition:
        """Send a message, born now and elsewhere."""
        place = self.appender.append(self.draft(body, topic, queue_id, **properties))
        self.opened.run_workers()
        return place

    def draft(self, body: bytes = b"body", topic: str = "T", queue_id: int = 0, **properties: str | int) -> Draft:
        return Draft(
            topic=topic,
            queue_id=queue_id,
            body=body,
            properties={name: str(value) for name, value in properties.items()},
            born_ms=self.clock.now_ms(),
            born_host=HOST,
        )

    def run(self) -> None:
        """Deliver all that is due."""
        self._out(self.delays.run)
        self._out(self.timers.run)

    def _out(self, run: Callable[[], bool]) -> None:
        while run():
            self.opened.run_workers()
        self.opened.run_workers()

    def pass_ms(self, ms: int) -> None:
        """Let time pass, then run the delivery once."""
        self.opened.tick(ms)
        self.run()

    def got(self, topic: str = "T", queue_id: int = 0) -> list[StoredMessage]:
        """What consumers of a queue can read."""
        return messages_in(self.store, topic, queue_id)

    def bodies(self, topic: str = "T", queue_id: int = 0) -> list[bytes]:
        return [message.body for message in self.got(topic, queue_id)]

    # keeping it

    def sync(self) -> None:
        """Have the log synced up to its end."""
        self.store.when_synced(self.store.end, lambda _: None)
        self.opened.run_workers()

    def save(self) -> None:
        """Save the progress that may be saved."""
        if self.delays.is_changed:
            self.saved["delayOffset.json"] = self.delays.snapshot_json(self.clock.now_ms())
        if self.timers.is_changed:
            self.saved["timers.json"] = self.timers.snapshot_json(self.clock.now_ms())

    def restart(self) -> "Life":
        """Stop cleanly and start again."""
        self.sync()
        self.save()
        return self._next(self.opened.reopen())

    def crash(self, survives: Survives = "everything", seed: int = 0) -> "Life":
        """End by a kill or a power loss, and start again with the saved state."""
        return self._next(self.opened.crash(survives, seed))

    def _next(self, opened: OpenStore) -> "Life":
        return Life(opened, self.saved, self.limits.forwards, self.settings.now.timer, self.limits.max_waiting)


def life_with(disk: FaultyFiles | None = None, clock: FakeClock | None = None, **store: object) -> Life:
    """A restart of the store with other settings."""
    return Life(OpenStore.small(disk, clock, **{"prepared_files": 60, **store}))


def with_timer(life: Life, **changes: object) -> None:
    """Change settings of timers while the broker runs."""
    timer = msgspec.structs.replace(life.settings.now.timer, **changes)
    life.settings.now = msgspec.structs.replace(life.settings.now, timer=timer)
