"""The test kit: virtual time, an in-memory network and a faulty disk. docs/guides/testing.md shows how to use it.

    run, VirtualLoop   an event loop with virtual time: an hour takes microseconds, a deadlock is an error
    FakeClock          a clock that a test can set back
    MemoryNetwork      a network without sockets, with faults on demand
    FaultyFiles        an in-memory disk that fails, stalls, fills up, and loses power in every way that POSIX allows

No other package of PocketMQ imports it.

Modules in reading order:

    virtual_loop       the event loop
    fake_clock         the clock
    memory_net         the network
    memory_transport   the two ends of an in-memory connection
    faulty_files       the disk, as a `Files`
    disk/              the model of that disk
    container          a broker in a container, with testcontainers; only on request
"""

from pocketmq.testing.disk.faults import Fault, Stall
from pocketmq.testing.disk.model import Operation
from pocketmq.testing.fake_clock import FakeClock
from pocketmq.testing.faulty_files import CrashPoint, FaultyFiles
from pocketmq.testing.memory_net import MemoryNetwork, Weather
from pocketmq.testing.virtual_loop import VirtualLoop, run

__all__ = [
    "CrashPoint",
    "FakeClock",
    "Fault",
    "FaultyFiles",
    "MemoryNetwork",
    "Operation",
    "Stall",
    "VirtualLoop",
    "Weather",
    "run",
]
