"""Room for messages on their way: count and bytes, first come, first served."""

import asyncio

import pytest

from pocketmq.client.room import Room
from pocketmq.errors import TooManyCalls
from pocketmq.testing import run


def test_room_is_taken_up_to_the_limits() -> None:
    room = Room(3, 100)

    assert [room.try_take(1, 10) for _ in range(4)] == [True, True, True, False]
    room.give(1, 10)
    assert not room.try_take(1, 81)
    assert room.try_take(1, 80)


def test_what_is_larger_than_the_room_goes_alone() -> None:
    room = Room(3, 100)

    assert room.try_take(5, 1000)
    assert not room.try_take(1, 1)
    room.give(5, 1000)
    assert room.try_take(1, 1)


def test_who_cannot_wait_is_told_so() -> None:
    room = Room(1, 100)
    room.take_now(1, 10)

    with pytest.raises(TooManyCalls, match="1 messages with 10 bytes are on their way"):
        room.take_now(1, 10)


def test_who_waits_is_let_in_in_order() -> None:
    async def main() -> None:
        room = Room(2, 100)
        order: list[int] = []
        room.take_now(2, 20)

        async def enter(number: int, size: int) -> None:
            await room.take(1, size)
            order.append(number)

        tasks = [asyncio.create_task(enter(n, size)) for n, size in enumerate((95, 1, 1))]
        await asyncio.sleep(0)
        assert room.waiting == 3
        room.give(1, 10)
        await asyncio.sleep(0)
        assert order == [], "the large one is first in line, and nobody passes it"
        room.give(1, 10)
        await asyncio.sleep(0.001)
        assert order == [0, 1]
        room.give(1, 95)
        await asyncio.gather(*tasks)
        assert (order, room.count, room.waiting) == ([0, 1, 2], 2, 0)

    run(main())


def test_who_gives_up_waiting_leaves_the_room_to_others() -> None:
    async def main() -> None:
        room = Room(1, 100)
        room.take_now(1, 10)
        first = asyncio.create_task(room.take(1, 10))
        second = asyncio.create_task(room.take(1, 10))
        await asyncio.sleep(0)

        first.cancel()
        room.give(1, 10)
        await second

        assert (room.count, room.waiting, first.cancelled()) == (1, 0, True)

    run(main())


def test_room_that_was_given_to_one_who_left_is_not_lost() -> None:
    async def main() -> None:
        room = Room(1, 100)
        room.take_now(1, 10)
        waiting = asyncio.create_task(room.take(1, 10))
        await asyncio.sleep(0)

        room.give(1, 10)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

        assert room.count == 0

    run(main())


def test_one_can_wait_until_nothing_is_on_its_way() -> None:
    async def main() -> None:
        room = Room(5, 100)
        await room.wait_empty()
        room.take_now(2, 10)
        empty = asyncio.create_task(room.wait_empty())
        await asyncio.sleep(0)
        room.give(1, 5)
        await asyncio.sleep(0)
        assert not empty.done()
        room.give(1, 5)
        await empty

    run(main())


def test_it_is_watched_while_somebody_waits_for_it() -> None:
    async def main() -> list[bool]:
        room, watched = Room(1, 100), []
        await room.take(1, 1)
        watched.append(room.is_watched)

        waiting = asyncio.create_task(room.take(1, 1))
        await asyncio.sleep(0)
        watched.append(room.is_watched)
        room.give(1, 1)
        await waiting
        watched.append(room.is_watched)

        empty = asyncio.create_task(room.wait_empty())
        await asyncio.sleep(0)
        watched.append(room.is_watched)
        room.give(1, 1)
        await empty
        return [*watched, room.is_watched]

    assert run(main()) == [False, True, False, True, False]
