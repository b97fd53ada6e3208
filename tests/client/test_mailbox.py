"""The mailbox: items of all threads arrive once and in order."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest
from tests.net.talk import run_on, until

from pocketmq.client.blocking import Mailbox
from pocketmq.net.portal import Portal


def test_items_of_threads_are_delivered_on_the_loop_in_order() -> None:
    async def main() -> None:
        taken: list[tuple[int, int]] = []
        threads: set[int] = set()

        def take(thing: tuple[int, int]) -> None:
            threads.add(threading.get_ident())
            taken.append(thing)

        mailbox = Mailbox(asyncio.get_running_loop(), take)

        def put_all(number: int) -> None:
            for at in range(2000):
                mailbox.put((number, at))

        putters = [threading.Thread(target=put_all, args=(number,)) for number in range(4)]
        for putter in putters:
            putter.start()
        await until(lambda: len(taken) == 8000)
        for putter in putters:
            putter.join()

        assert threads == {threading.get_ident()}
        for number in range(4):
            assert [at for n, at in taken if n == number] == list(range(2000))

    run_on(asyncio.new_event_loop, main())


def test_an_item_whose_delivery_raises_does_not_stop_the_others() -> None:
    async def main() -> None:
        taken: list[int] = []
        failures: list[dict[str, object]] = []

        def take(thing: int) -> None:
            if thing == 1:
                raise ValueError("not this one")
            taken.append(thing)

        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failures.append(context))
        mailbox = Mailbox(loop, take)
        for thing in range(4):
            mailbox.put(thing)
        await until(lambda: taken == [0, 2, 3])
        assert len(failures) == 1

    run_on(asyncio.new_event_loop, main())


def test_a_loop_that_adds_an_item_wakes_the_other_after_its_ready_callbacks() -> None:
    with Portal("the other loop") as portal:
        other = portal.submit(_loop()).result()

        async def main() -> None:
            taken: list[tuple[int, threading.Thread]] = []
            wakes: list[object] = []
            here = asyncio.get_running_loop()
            mailbox: Mailbox[int] = Mailbox(
                cast("asyncio.AbstractEventLoop", Watched(other, wakes)),
                lambda thing: taken.append((thing, threading.current_thread())),
                source=here,
            )
            for thing in range(100):
                mailbox.put(thing)
            here.call_soon(mailbox.put, 100)
            assert (taken, wakes) == ([], []), "no waiter is woken before this loop runs"

            await until(lambda: len(taken) == 101)
            assert [thing for thing, _ in taken] == list(range(101))
            assert {thread for _, thread in taken} != {threading.current_thread()}
            assert 1 <= len(wakes) <= 2

        run_on(asyncio.new_event_loop, main())


def test_adding_an_item_for_a_closed_loop_raises() -> None:
    async def main() -> None:
        closed = asyncio.new_event_loop()
        here = asyncio.get_running_loop()
        alone: Mailbox[int] = Mailbox(closed, lambda _: None)
        mailbox: Mailbox[int] = Mailbox(closed, lambda _: None, source=here)
        mailbox.put(1)
        closed.close()
        await asyncio.sleep(0)

        for box in (mailbox, alone):
            for thing in (2, 3):
                with pytest.raises(RuntimeError, match=r"closed"):
                    box.put(thing)

    run_on(asyncio.new_event_loop, main())


def test_items_that_no_loop_will_process_can_be_withdrawn() -> None:
    loop = asyncio.new_event_loop()
    mailbox: Mailbox[int] = Mailbox(loop, lambda _: None)
    mailbox.put(1)
    mailbox.put(2)
    assert mailbox.undelivered() == [], "the loop may still come"

    loop.close()

    assert (mailbox.undelivered(), mailbox.undelivered()) == ([1, 2], [])
    with pytest.raises(RuntimeError, match=r"closed"):
        mailbox.put(3)


class Watched:
    """A loop whose wakes from other threads are counted."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wakes: list[object]) -> None:
        self._loop = loop
        self._wakes = wakes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def call_soon_threadsafe(self, callback: Callable[..., None]) -> None:
        self._wakes.append(callback)
        self._loop.call_soon_threadsafe(callback)


async def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()
