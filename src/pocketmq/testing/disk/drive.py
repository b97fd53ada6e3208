"""One call at a time: the rules of the test first, then the disk, then the journal.

    call ── admit ──────────── do ──────────────► Disk.apply ──► Journal.record
             │ stalls wait here  │ under the lock
             └ faults come out   └ dated by the clock

`lock` is the only lock of a disk. Whoever touches `disk` or `journal` holds it; a stalled call does not.
"""

import threading
from random import Random

from pocketmq.clock import Clock
from pocketmq.testing.disk.contents import Contents
from pocketmq.testing.disk.faults import Call, Fault, Stall
from pocketmq.testing.disk.journal import Journal
from pocketmq.testing.disk.model import Disk, Operation
from pocketmq.testing.disk.names import os_error


class Drive:
    """What all files of one disk share."""

    def __init__(self, disk: Disk, *, capacity: int | None, clock: Clock, seed: int, journal_max: int) -> None:
        self.lock = threading.Lock()
        self.disk = disk
        self.journal = Journal(disk.copy(), journal_max)
        self.journal_max = journal_max
        self.capacity = capacity
        self.clock = clock
        self.seed = seed
        self.random = Random(seed)  # noqa: S311 repeatable, not secret
        self.owners: dict[int, object] = {}
        self._faults: tuple[Fault, ...] = ()
        self._stalls: tuple[Stall, ...] = ()

    def like_this(self, disk: Disk) -> "Drive":
        """A drive of the same kind that holds another disk: no faults, no stalls, no locks."""
        return Drive(disk, capacity=self.capacity, clock=self.clock, seed=self.seed, journal_max=self.journal_max)

    def do(self, operation: Operation) -> None:
        dated = operation._replace(at_ms=self.clock.now_ms())
        self.disk.apply(dated)
        self.journal.record(dated)

    def room(self, contents: Contents, offset: int, size: int) -> int:
        """How many of `size` bytes at `offset` can be written before the disk is full."""
        return size if self.capacity is None else self.disk.room(contents, offset, size, self.capacity)

    def admit(self, call: Call, *paths: str) -> OSError | None:
        """Wait where a stall says so; the error that this call has to raise, if any."""
        if not self._faults and not self._stalls:
            return None
        with self.lock:
            stalls = [stall for stall in self._stalls if stall.meets(call, paths)]
            faults = [fault for fault in self._faults if fault.meets(call, paths)]
        for stall in stalls:
            stall.block()
        return os_error(faults[0].code, paths[0]) if faults else None

    def strike(self, call: Call, *paths: str) -> None:
        """As `admit`, for calls that do nothing at all when they fail."""
        error = self.admit(call, *paths)
        if error is not None:
            raise error

    def add_fault(self, fault: Fault) -> None:
        with self.lock:
            self._faults = (*(old for old in self._faults if not old.over), fault)

    def add_stall(self, stall: Stall) -> None:
        with self.lock:
            self._stalls = (*(old for old in self._stalls if not old.released), stall)

    def heal(self) -> None:
        with self.lock:
            faults, self._faults = self._faults, ()
            stalls, self._stalls = self._stalls, ()
        for fault in faults:
            fault.heal()
        for stall in stalls:
            stall.release()

    def stalled(self) -> int:
        return sum(stall.waiting for stall in self._stalls)
