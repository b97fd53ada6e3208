"""The test kit: time, network and disk that obey a test. It is part of the product: docs/testing.md shows how to use it.

    run, VirtualLoop   an event loop whose time jumps: an hour takes microseconds, a deadlock is an error
    FakeClock          a clock whose wall can be set back
    MemoryNetwork      a network without sockets, with every fault on demand
    FaultyFiles        a disk that fails, stalls, fills up, and loses power in every legal way

Nothing of PocketMQ imports it.
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
