"""When a thread polls for an answer, and when it sleeps at once."""

import os
import socket
from collections.abc import Iterator

import pytest

from pocketmq.clock import SystemClock
from pocketmq.net.blocking import MAX_SUSPENDED, POLL_S, PeerWatch, can_watch
from pocketmq.testing import FakeClock


class CountingClock(FakeClock):
    """Each reading is a third of a poll later than the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.readings = 0

    def monotonic(self) -> float:
        self.readings += 1
        return self.readings * POLL_S / 3


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def looks(watch: PeerWatch, clock: CountingClock, times: int) -> list[bool]:
    """Which of this number of waits started with a poll."""
    found = []
    for _ in range(times):
        before = clock.readings
        watch.poll()
        found.append(clock.readings > before)
    return found


def test_available_bytes_are_found_at_once_each_time(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.send(b"x")
    clock = CountingClock()
    assert all(looks(PeerWatch(ours.fileno(), clock), clock, 50))
    assert clock.readings == 50


def test_an_unsuccessful_poll_ends_and_delays_the_next_one(pair: tuple[socket.socket, socket.socket]) -> None:
    clock = CountingClock()
    watch = PeerWatch(pair[0].fileno(), clock)
    assert looks(watch, clock, 1 + 1 + 1 + 2 + 1 + 4 + 1) == [True, False, True, *[False] * 2, True, *[False] * 4, True]


def test_polls_are_not_delayed_indefinitely(pair: tuple[socket.socket, socket.socket]) -> None:
    clock = CountingClock()
    watch = PeerWatch(pair[0].fileno(), clock)
    done = looks(watch, clock, 5 * MAX_SUSPENDED)
    assert done[-MAX_SUSPENDED - 1 :].count(True) == 1


def test_a_quick_answer_enables_polling_again(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    clock = CountingClock()
    watch = PeerWatch(ours.fileno(), clock)
    looks(watch, clock, 1 + 1 + 1 + 2)
    theirs.send(b"x")
    assert looks(watch, clock, 3) == [True] * 3
    ours.recv(1)
    assert looks(watch, clock, 3) == [True, False, True], "counted from the beginning"


def test_the_end_of_a_connection_ends_a_poll(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.close()
    clock = CountingClock()
    assert all(looks(PeerWatch(ours.fileno(), clock), clock, 5))


def test_with_one_core_no_thread_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    assert not can_watch()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    assert can_watch()
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert not can_watch()


def test_a_poll_by_the_real_clock_is_short(pair: tuple[socket.socket, socket.socket]) -> None:
    clock = SystemClock()
    began = clock.monotonic()
    PeerWatch(pair[0].fileno(), clock).poll()
    assert clock.monotonic() - began >= POLL_S
