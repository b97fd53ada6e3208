"""One run on a disk: a store is opened and used at random, with faults, until the power fails.

Every step goes through the public face of the store. Its threads are run by hand, a few jobs at a time, so that everything that
may be in flight is in flight at some moment. What was asked and promised goes into a `History`.
"""

import errno
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import NamedTuple

from tests.store.crash.history import Attempt, History, Saved, Sent
from tests.store.kit import HOST, ROOT
from tests.store.open_store import OpenStore

from pocketmq.codes import SysFlag
from pocketmq.errors import PocketMQError
from pocketmq.model.names import SCHEDULE_TOPIC, parse_topic
from pocketmq.store.log.log_scan import RecoveryScan
from pocketmq.store.message_store import MessageStore
from pocketmq.store.settings import FlushMode, StoreSettings
from pocketmq.store.tables import Tables
from pocketmq.testing import FakeClock, FaultyFiles
from pocketmq.testing.disk.faults import Call, Fault

TOPICS = ("A", "B", "%RETRY%group", SCHEDULE_TOPIC)
TABLES = ("topics.json", "consumerOffset.json")
HOUR_MS = 3_600_000
LARGEST_BODY = 3000

_PLACES = ("*/commitlog/*", "*/consumequeue/*", "*/index/*", "*/checkpoint", "*/config/*", "*")
_CALLS: tuple[Call, ...] = ("write", "sync", "sync_dir", "create", "truncate", "unlink", "open")


def random_settings(random: Random) -> StoreSettings:
    """Small files, and every way of flushing."""
    return StoreSettings(
        folder=ROOT,
        log_file_bytes=random.choice((4096, 8192)),
        prepared_files=random.choice((1, 2)),
        max_message_bytes=LARGEST_BODY,
        flush=random.choice(list(FlushMode)),
        flush_least_pages=random.choice((0, 1)),
        flush_interval_ms=random.choice((0, 500)),
        transient_pool=random.random() < 0.15,
        pool_buffers=3,
        pool_buffer_bytes=2048,
        queue_file_entries=random.choice((8, 20, 30, 110)),
        queue_least_pages=random.choice((0, 1)),
        queue_thorough_ms=random.choice((500, 3000, 10_000)),
        max_open_queue_files=random.choice((1, 3, 100)),
        index_slots=7,
        index_entries=random.choice((12, 60)),
        checkpoint_interval_ms=random.choice((100, 1000)),
        resume_interval_ms=random.choice((500, 5000)),
        retention_hours=1,
        disk_clean_ratio=0.001,
        max_deletes_per_run=random.choice((1, 10)),
    )


class Setting(NamedTuple):
    """Shared by the runs of one seed: the settings, the clock and the random source."""

    settings: StoreSettings
    clock: FakeClock
    random: Random


class Life:
    """A program that runs on `disk` and records its calls."""

    def __init__(self, setting: Setting, disk: FaultyFiles, history: History, sent_count: int) -> None:
        self.settings, self.clock, self.random = setting
        self.disk = disk
        self.history = history
        self.sent_count = sent_count
        self._faults: list[Fault] = []
        self._troubled = False
        self._open: OpenStore | None = None
        self._tables = Tables(disk, ROOT / "config")

    def live(self) -> None:
        """Open the store and use it for a while."""
        self._open_store()
        steps = self._steps()
        names, weights = [*steps], [weight for weight, _ in steps.values()]
        for name in self.random.choices(names, weights, k=self.random.randrange(1, 90)):
            steps[name][1]()

    def _steps(self) -> dict[str, tuple[int, Callable[[], None]]]:
        return {
            "turn": (40, self._turn),
            "tick": (30, self._tick),
            "work": (25, self._work),
            "work all": (8, self._work_all),
            "save table": (3, self._save_table),
            "delete topic": (2, self._delete_topic),
            "reopen": (2, self._reopen),
            "hours pass": (2, self._hours_pass),
            "disk fills": (1, self._disk_fills),
            "clock steps": (1, self._clock_steps),
            "fault": (2, self._fault),
        }

    @property
    def store(self) -> MessageStore:
        assert self._open is not None
        return self._open.store

    # opening and closing

    def _open_store(self) -> None:
        try:
            self._open = OpenStore(self.settings, self.clock, self.disk)
        except PocketMQError:
            assert self._troubled, "a store can be opened when the disk is well"
            self._heal()
            self._open = OpenStore(self.settings, self.clock, self.disk)
        start, found = read_log(self.disk, self.settings)
        self.history.legal_at(self.disk.position).judge(start, found)
        self.history.opened(self.disk.position, start, found)

    def _reopen(self) -> None:
        try:
            self.store.close()
        except PocketMQError:
            assert self._troubled, "a store can be closed when the disk is well"
        self._open_store()
        self._troubled = False

    # sending

    def _turn(self) -> None:
        sent: list[Sent] = []
        # The disk may be full, a file not ready, the store stopped: what was staged before is stored.
        with suppress(PocketMQError):
            for _ in range(self.random.choice((1, 1, 2, 5, 12))):
                sent += [self._stage()]
        if self.random.random() < 0.05:
            self.store.abandon_turn()
            return
        begun = self.disk.position
        try:
            self.store.end_turn()
        except PocketMQError:
            assert self._troubled, "a turn can be written when the disk is well"
            self.history.now.attempts.append(Attempt(begun, None, sent))
            return
        if sent:
            self.history.now.attempts.append(Attempt(begun, self.disk.position, sent))
            self._await_sync(self.store.end)

    def _stage(self) -> Sent:
        random = self.random
        topic = random.choice(TOPICS)
        queue = self.store.queue(parse_topic(topic), random.randrange(2))
        self.sent_count += 1
        body = f"{self.sent_count}:".encode() + random.randbytes(
            random.choice((5, 40, 40, 400, random.randrange(2500)))
        )
        properties = (
            f"UNIQ_KEY\x01id{self.sent_count}\x02KEYS\x01k{random.randrange(9)} k{random.randrange(9)}\x02".encode()
        )
        sys_flag = random.choice(
            (0, 0, 0, 0, SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK)
        )
        if topic == SCHEDULE_TOPIC:
            properties += f"DELAY\x01{random.randrange(1, 5)}\x02".encode()
        elif random.random() < 0.5:
            properties += f"TAGS\x01tag{random.randrange(3)}\x02".encode()
        before, born_ms = queue.next_offset, self.clock.now_ms()
        queue_offset, log_offset = self.store.stage(queue, body, properties, 0, sys_flag, born_ms, HOST)
        assert queue_offset == (0 if sys_flag & SysFlag.TRANSACTION_PREPARED else before)
        size = self.store.end - log_offset
        return Sent(topic, queue.queue_id, queue_offset, log_offset, body, properties, int(sys_flag), born_ms, size)

    def _await_sync(self, upto: int) -> None:
        promises = self.history.now.promises

        def synced(in_time: bool) -> None:
            if in_time:
                promises.append((self.disk.position, upto))

        if self.settings.flush is FlushMode.SYNC:
            self.store.when_synced(upto, synced)

    # time and threads

    def _tick(self) -> None:
        self.clock.advance_ms(self.random.choice((10, 100, 600, 2000, 5000)))
        position, start = self.disk.position, self._log_start()
        self.store.tick()
        self._note_drops(position, start)

    def _note_drops(self, position: int, old_start: int) -> None:
        size = self.settings.log_file_bytes
        self.history.now.drops += [(position, at) for at in range(old_start + size, self._log_start() + size, size)]

    def _log_start(self) -> int:
        return self.store._parts.log.start

    def _work(self) -> None:
        assert self._open is not None
        self.random.choice(list(self._open.workers.values())).run(self.random.randrange(1, 4))

    def _work_all(self) -> None:
        assert self._open is not None
        self._open.run_workers()

    def _clock_steps(self) -> None:
        self.clock.step_ms(self.random.choice((-HOUR_MS, -10_000, 60_000)))

    # other things that happen

    def _save_table(self) -> None:
        name, value = self.random.choice(TABLES), self.random.randrange(1, 1000)
        data = f'{{"value":{value},"filler":"{"x" * self.random.choice((0, 2000))}"}}'.encode()
        begun, ended = self.disk.position, None
        try:
            self._tables.save(name, data)
            ended = self.disk.position
        except PocketMQError:
            assert self._troubled, "a table can be saved when the disk is well"
        self.history.saves.append(Saved(begun, ended, name, value))

    def _delete_topic(self) -> None:
        topic = self.random.choice(TOPICS)
        begun, ended, log_end = self.disk.position, None, self.store.end
        try:
            self.store.delete_topic(topic)
            ended = self.disk.position
        except PocketMQError:
            assert self._troubled, "a topic can be deleted when the disk is well"
        self.history.delete(begun, ended, topic, log_end)

    def _hours_pass(self) -> None:
        self.clock.advance_ms(2 * HOUR_MS)
        self._tick()

    def _disk_fills(self) -> None:
        """So full that files of any age go; later there is space again."""
        self._troubled = True
        usage = self.disk.usage(ROOT)
        self.disk.resize(int((usage.total - usage.free) / self.random.choice((0.87, 0.95, 1))))
        for _ in range(self.random.randrange(4)):
            self._turn()
        self.clock.advance_ms(10_000)
        self._tick()
        self.disk.resize(None)

    def _fault(self) -> None:
        """Something fails, once or for a while; a few steps later all is well again."""
        self._troubled = True
        call, path = self.random.choice(_CALLS), self.random.choice(_PLACES)
        if call == "sync_dir" and path == "*":
            return  # a log folder that lost file names may have a hole, which only a person may repair
        code = errno.EIO if call in ("sync", "sync_dir") else self.random.choice((errno.ENOSPC, errno.EIO))
        times = self.random.choice((1, 1, 3, None))
        self._faults.append(self.disk.fail(call, code, path, nth=self.random.randrange(1, 4), times=times))
        for _ in range(self.random.randrange(6)):
            self.random.choice((self._turn, self._tick, self._work, self._save_table))()
        self._heal()

    def _heal(self) -> None:
        for fault in self._faults:
            fault.heal()


def read_log(disk: FaultyFiles, settings: StoreSettings) -> tuple[int, list[Sent]]:
    """The start and content of the log in the files, parsed from their bytes alone; all bytes after it must be
    zeros.
    """
    folder, size = settings.folder / "commitlog", settings.log_file_bytes
    names = disk.list(folder)
    start = int(names[0]) if names else 0
    log = b"".join(disk.read(folder / name) for name in names)
    walk = RecoveryScan(lambda at, count: log[at - start : at - start + count], size, start, start + len(log))
    found = [
        Sent(
            message.topic,
            message.queue_id,
            message.queue_offset,
            at,
            message.body,
            message.raw_properties,
            message.sys_flag,
            message.born_ms,
            message.size,
        )
        for at, message in walk
    ]
    behind = log[walk.end - start :]
    assert not any(behind), f"there are bytes other than zero after the end of the log at {walk.end}"
    return start, found
