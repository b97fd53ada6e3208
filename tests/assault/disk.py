"""Scenes: the disk fails, stalls or executes a call partly; the process is killed at a chosen call."""

import errno
import random
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from tests.assault.stage import SETTINGS, Load, Stage

FAULT_S: Final = 2.0
STALL_MS: Final = 4_000
DERIVED_STALL_MS: Final = 2_000
DERIVED_CALLS: Final = (
    ("write", "consumequeue"),
    ("open", "consumequeue"),
    ("write", "checkpoint"),
    ("write", "index"),
    ("open", "index"),
)
SMALL_INDEX: Final = ("maxHashSlotNum=500", "maxIndexNum=5000")
"""So that index files are created during a scene."""


class DiskFault(NamedTuple):
    """A temporary fault: afterwards the server must work as before. `times` of -1: for `FAULT_S` seconds."""

    operation: str
    action: str
    argument: int
    path: str
    times: int = -1

    def __str__(self) -> str:
        words = {
            "fail": f"fails with {errno.errorcode.get(self.argument)}",
            "stall": f"takes {self.argument} ms",
            "half": f"is half done, then fails with {errno.errorcode.get(self.argument)}",
            "short": "is short",
        }
        often = "" if self.times < 0 else f", {self.times} times"
        return f"{self.operation} of {self.path} {words[self.action]}{often}"


PASSING: Final = (
    (
        "async",
        DiskFault("write", "fail", errno.ENOSPC, "commitlog"),
        DiskFault("write", "half", errno.EIO, "commitlog", times=20),
        DiskFault("write", "short", 0, "commitlog", times=50),
    ),
    (
        "sync",
        DiskFault("write", "fail", errno.EIO, "commitlog", times=20),
        DiskFault("sync", "stall", 3_000, "commitlog", times=1),
        DiskFault("open", "fail", errno.ENOMEM, "commitlog", times=2),
    ),
    (
        "async",
        DiskFault("sync", "stall", 3_000, "commitlog", times=1),
        DiskFault("open", "fail", errno.EMFILE, "broker-a"),
        DiskFault("allocate", "fail", errno.ENOSPC, "commitlog", times=2),
    ),
    (
        "async",
        DiskFault("write", "fail", errno.EIO, "consumequeue", times=5),
        DiskFault("write", "half", errno.ENOSPC, "consumequeue", times=5),
        DiskFault("write", "stall", 700, "consumequeue", times=2),
    ),
    (
        "async",
        DiskFault("rename", "fail", errno.EIO, "config", times=2),
        DiskFault("rename", "stall", 2_000, "config", times=1),
    ),
)
"""The flush mode of a server, and the faults that it meets one after the other."""

KILLS: Final = {
    "async": (
        ("write", "kill", "commitlog"),
        ("write", "half-kill", "commitlog"),
        ("write", "kill", "config"),
        ("open", "kill", "commitlog"),
    ),
    "sync": (
        ("write", "half-kill", "consumequeue"),
        ("sync", "kill", "commitlog"),
        ("rename", "kill", "config"),
    ),
}
KILLS_EACH: Final = 2


def passing(flush: str, faults: tuple[DiskFault, ...], stage: Stage) -> None:
    stage.serve("--flush", flush, settings=(*SETTINGS, "allocateLogFiles=true"))
    with stage.load() as load:
        for fault in faults:
            with stage.injector.fault(
                fault.operation, fault.action, fault.argument, path=fault.path, times=fault.times
            ) as injected:
                if fault.times < 0:
                    stage.during(FAULT_S)
                else:
                    stage.until_hit(injected, fault.times, f"the fault: {fault}")
            stage.expect(injected.hits, f"the fault was never met: {fault}")
            stage.until_sent(load, 100, f"sends after the fault: {fault}")
    stage.expect(stage.log_bytes < 2_000_000, f"the log has grown to {stage.log_bytes} bytes")
    stage.stop()


def stalled_writes(stage: Stage, *, announced: bool, settings: tuple[str, ...] = SETTINGS) -> None:
    """The first rule of RocketMQ's flow control for producers: sends are rejected in time, all other requests are served.

    `announced`: a write of 100 ms comes before the one that stalls, as disks do that become slow.
    """
    stage.serve(settings=settings)
    with stage.load() as load:
        if announced:
            with stage.injector.fault("write", "stall", 100, path="commitlog", times=1) as first:
                stage.until(lambda: first.hits, "the slow write")
        with (
            stage.latencies() as taken,
            stage.injector.fault("write", "stall", STALL_MS, path="commitlog", times=1) as injected,
        ):
            stage.until(lambda: injected.hits, "the stall")
            stage.during(STALL_MS / 1000)
        slowest = max(taken)
        stage.facts.append(f"slowest query of offsets during the stall {slowest * 1000:.0f} ms")
        if announced or settings is not SETTINGS:
            stage.expect(slowest < 1.0, f"a look at offsets took {slowest:.1f} s while a write stalled")
            busy = [kind for kind in load.refused if kind.endswith("QUEUE") or kind == "REJECTREQUEST"]
            stage.expect(busy, f"no send was rejected as busy: {dict(load.refused)}")
    stage.stop()


def stalled_derived_writes(stage: Stage) -> None:
    """Calls for files that are derived from the log stall: no request waits for them."""
    stage.serve(settings=(*SETTINGS, *SMALL_INDEX))
    with stage.load() as load:
        for operation, path in DERIVED_CALLS:
            with (
                stage.latencies() as taken,
                stage.injector.fault(operation, "stall", DERIVED_STALL_MS, path=path, times=1) as injected,
            ):
                stage.until_hit(injected, 1, f"the stall of {path}")
                before = len(load.acknowledged)
                stage.during(DERIVED_STALL_MS / 1000)
                sent = len(load.acknowledged) - before
            slowest = max(taken)
            call = f"{operation} of {path}"
            stage.facts.append(f"{call}: slowest query of offsets {slowest * 1000:.0f} ms, {sent} sends in this time")
            stage.expect(slowest < 1.0, f"a look at offsets took {slowest:.1f} s while {call} stalled")
            stage.expect(sent > 100, f"{sent} sends were taken while {call} stalled")
    stage.stop()


def failed_sync(stage: Stage) -> None:
    """After a failed sync the server accepts no sends, serves reads, and is correct after a restart."""
    stage.serve("--flush", "sync")
    with Load(stage.name_server) as load:
        stage.until(lambda: len(load.handled) > 100, "the first messages")
        with stage.injector.fault("sync", "fail", errno.EIO, path="commitlog", times=1) as injected:
            stage.until(lambda: injected.hits, "the failed sync")
        stage.until(lambda: load.refused.total() > 20, "refusals")
        refused = load.refused.total()
        stage.during(1)
        stage.expect(load.refused.total() > refused, "sends were taken again after a failed sync")
        stage.server.terminate()
        stage.start_again()
        stage.until_sent(load, 100, "sends after the restart")
        load.stop_sending()
        stage.drain(load)
    stage.stop()


def killed_at_calls(flush: str, stage: Stage) -> None:
    dice = random.Random(f"{stage.seed}/{flush}")
    stage.serve("--flush", flush)
    kills = KILLS[flush] * KILLS_EACH
    with stage.load() as load:
        for operation, action, path in kills:
            skip = dice.randrange(200) if (operation, path) == ("write", "commitlog") else dice.randrange(3)
            with stage.injector.fault(operation, action, path=path, skip=skip, times=1):
                stage.until(lambda: stage.server.code is not None, f"the {action} at a {operation} of {path}", 60)
            stage.start_again()
            stage.until_sent(load, 50, f"sends after the {action} at a {operation} of {path}")
    stage.facts.append(f"{len(kills)} kills")
    stage.stop()


def full_disk_at_start(stage: Stage) -> None:
    """A start on a full disk reports it, and loses nothing."""
    stage.serve()
    with stage.load():
        pass
    stage.stop()
    with (
        stage.injector.fault("allocate", "fail", errno.ENOSPC),
        stage.injector.fault("write", "fail", errno.ENOSPC, path="broker-a"),
    ):
        ended = stage.try_to_start()
    stage.expect(ended is None or ended > 0, f"a start on a full disk ended by signal {ended}")
    if ended is None:
        stage.server.terminate()
    stage.start_again()
    stage.stop()


def _calls(flush: str) -> str:
    kinds = (
        f"a {operation} of {path}{' half done' * (action == 'half-kill')}" for operation, action, path in KILLS[flush]
    )
    return ", ".join(kinds)


SCENES: Final[dict[str, Callable[[Stage], None]]] = {
    "a write to the log that stalls for 4 s, after one of 100 ms": partial(stalled_writes, announced=True),
    "a write to the log that stalls for 4 s without a warning": partial(stalled_writes, announced=False),
    "a write to the log that stalls for 4 s without a warning, slowWriteMillis=0": partial(
        stalled_writes, announced=False, settings=(*SETTINGS, "slowWriteMillis=0")
    ),
    "writes and opens of queue files, index files and the checkpoint that stall for 2 s": stalled_derived_writes,
    "a failed sync": failed_sync,
    "a start on a full disk": full_disk_at_start,
    **{
        f"{'; '.join(map(str, faults))} ({flush} flush)": partial(passing, flush, tuple(faults))
        for flush, *faults in PASSING
    },
    **{
        f"killed twice at each of these: {_calls(flush)} ({flush} flush)": partial(killed_at_calls, flush)
        for flush in KILLS
    },
}
