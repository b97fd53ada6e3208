"""Scenes: the disk fails, stalls or does half of what it is asked; the process is killed at a chosen call."""

import errno
import random
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from tests.assault.stage import SMALL_FILES, Load, Stage

FAULT_S: Final = 3.0
STALL_MS: Final = 4_000


class DiskFault(NamedTuple):
    """A row of the table below. `times` of -1: for `FAULT_S` seconds."""

    operation: str
    action: str
    argument: int
    path: str
    times: int = -1
    flush: str = "async"
    must_hit: bool = True

    def __str__(self) -> str:
        what = f"takes {self.argument} ms" if self.action == "stall" else errno.errorcode.get(self.argument, "")
        words = {"fail": "fails with", "stall": "", "half": "is half done, then fails with", "short": "is short"}
        often = "" if self.times < 0 else f", {self.times} times"
        return f"{self.operation} of {self.path or 'any file'} {words[self.action]} {what}{often} ({self.flush} flush)".replace(
            "  ", " "
        )


PASSING: Final = (
    DiskFault("write", "fail", errno.ENOSPC, "commitlog"),
    DiskFault("write", "fail", errno.EIO, "commitlog", times=20, flush="sync"),
    DiskFault("write", "half", errno.EIO, "commitlog", times=20),
    DiskFault("write", "short", 0, "commitlog", times=50),
    DiskFault("write", "fail", errno.EIO, "consumequeue", times=5),
    DiskFault("write", "half", errno.ENOSPC, "consumequeue", times=5),
    DiskFault("write", "stall", 700, "consumequeue", times=2),
    DiskFault("sync", "stall", 3_000, "commitlog", times=1, flush="sync"),
    DiskFault("sync", "stall", 3_000, "commitlog", times=1),
    DiskFault("open", "fail", errno.EMFILE, "broker-a"),
    DiskFault("open", "fail", errno.ENOMEM, "commitlog", flush="sync", must_hit=False),
    DiskFault("rename", "fail", errno.EIO, "config", times=2),
    DiskFault("rename", "stall", 2_000, "config", times=1),
    DiskFault("allocate", "fail", errno.ENOSPC, "commitlog", must_hit=False),
)
"""Temporary faults: afterwards the server must work as before."""

KILLS: Final = (
    ("write", "kill", "commitlog", "async"),
    ("write", "half-kill", "commitlog", "async"),
    ("write", "half-kill", "consumequeue", "sync"),
    ("write", "kill", "config", "async"),
    ("sync", "kill", "commitlog", "sync"),
    ("open", "kill", "commitlog", "async"),
    ("rename", "kill", "config", "sync"),
)
KILLS_EACH: Final = 2


def passing(fault: DiskFault, stage: Stage) -> None:
    stage.serve("--flush", fault.flush)
    with stage.load():
        with stage.injector.fault(
            fault.operation, fault.action, fault.argument, path=fault.path, times=fault.times
        ) as injected:
            if fault.times < 0:
                stage.during(FAULT_S)
            else:
                stage.until(lambda: injected.hits >= fault.times, "the fault")
        stage.expect(injected.hits or not fault.must_hit, "the fault was never met")
    stage.expect(stage.log_bytes < 2_000_000, f"the log has grown to {stage.log_bytes} bytes")
    stage.stop()


def stalled_writes(stage: Stage, *, announced: bool, settings: tuple[str, ...] = SMALL_FILES) -> None:
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
        stage.facts.append(f"slowest look at offsets during the stall {slowest * 1000:.0f} ms")
        if announced or settings is not SMALL_FILES:
            stage.expect(slowest < 1.0, f"a look at offsets took {slowest:.1f} s while a write stalled")
            busy = [kind for kind in load.refused if kind.endswith("QUEUE") or kind == "REJECTREQUEST"]
            stage.expect(busy, f"no send was rejected as busy: {dict(load.refused)}")
    stage.stop()


def stalled_derived_writes(path: str, stage: Stage) -> None:
    """Writes to files that are derived from the log stall: no request waits for them."""
    stage.serve(settings=SMALL_FILES)
    with stage.load() as load:
        with (
            stage.latencies() as taken,
            stage.injector.fault("write", "stall", STALL_MS, path=path, times=1) as injected,
        ):
            stage.until(lambda: injected.hits, "the stall")
            before = len(load.acknowledged)
            stage.during(STALL_MS / 1000)
            sent = len(load.acknowledged) - before
        slowest = max(taken)
        stage.facts.append(f"slowest look at offsets during the stall {slowest * 1000:.0f} ms, {sent} sends meanwhile")
        stage.expect(slowest < 1.0, f"a look at offsets took {slowest:.1f} s while a write to {path} stalled")
        stage.expect(sent > 100, f"{sent} sends were taken while a write to {path} stalled")
    stage.stop()


def failed_sync(stage: Stage) -> None:
    """A failed sync is not forgiven: the server takes no more sends, keeps serving reads, and is right after a restart."""
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
        before = len(load.acknowledged)
        stage.until(lambda: len(load.acknowledged) > before + 100, "sends after the restart")
        load.stop_sending()
        stage.drain(load)
    stage.stop()


def killed_at_a_call(operation: str, action: str, path: str, flush: str, stage: Stage) -> None:
    dice = random.Random(f"{stage.seed}/{operation}/{action}/{path}")
    stage.serve("--flush", flush)
    with stage.load() as load:
        for _ in range(KILLS_EACH):
            skip = dice.randrange(200) if (operation, path) == ("write", "commitlog") else dice.randrange(3)
            with stage.injector.fault(operation, action, path=path, skip=skip, times=1):
                stage.until(lambda: stage.server.code is not None, f"the kill at a {operation} of {path}", 60)
            stage.start_again()
            before = len(load.acknowledged)
            stage.until(lambda before=before: len(load.acknowledged) > before + 50, "sends after the restart")  # type: ignore[misc]
    stage.facts.append(f"{KILLS_EACH} kills")
    stage.stop()


def full_disk_at_start(stage: Stage) -> None:
    """A start on a full disk says so, and loses nothing."""
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


SCENES: Final[dict[str, Callable[[Stage], None]]] = {
    "a write to the log that stalls for 4 s, after one of 100 ms": partial(stalled_writes, announced=True),
    "a write to the log that stalls for 4 s out of the blue": partial(stalled_writes, announced=False),
    "a write to the log that stalls for 4 s out of the blue, slowWriteMillis=0": partial(
        stalled_writes, announced=False, settings=(*SMALL_FILES, "slowWriteMillis=0")
    ),
    "a write to a consume queue that stalls for 4 s out of the blue": partial(stalled_derived_writes, "consumequeue"),
    "a write to the checkpoint that stalls for 4 s out of the blue": partial(stalled_derived_writes, "checkpoint"),
    "a failed sync": failed_sync,
    "a start on a full disk": full_disk_at_start,
    **{str(fault): partial(passing, fault) for fault in PASSING},
    **{
        f"killed at a {operation} of {path}{' half done' * (action == 'half-kill')} ({flush} flush)": partial(
            killed_at_a_call, operation, action, path, flush
        )
        for operation, action, path, flush in KILLS
    },
}
