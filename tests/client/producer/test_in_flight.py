"""The in-flight limit: messages and bytes, in order of arrival."""

import asyncio

import pytest

from pocketmq.client.producer.pending import InFlightLimit
from pocketmq.errors import TooManyCalls
from pocketmq.testing import run


def test_messages_are_accepted_up_to_the_limit() -> None:
    limit = InFlightLimit(3, 100)

    assert [limit.try_acquire(1, 10) for _ in range(4)] == [True, True, True, False]
    limit.release(1, 10)
    assert not limit.try_acquire(1, 81)
    assert limit.try_acquire(1, 80)


def test_a_message_above_the_limit_is_sent_alone() -> None:
    limit = InFlightLimit(3, 100)

    assert limit.try_acquire(5, 1000)
    assert not limit.try_acquire(1, 1)
    limit.release(5, 1000)
    assert limit.try_acquire(1, 1)


def test_a_reached_limit_is_an_error_without_waiting() -> None:
    limit = InFlightLimit(1, 100)
    assert limit.try_acquire(1, 10)

    with pytest.raises(TooManyCalls, match="flow control: 1 messages with 10 bytes are in flight"):
        limit.refuse()


def test_waiters_are_admitted_in_order() -> None:
    async def main() -> None:
        limit = InFlightLimit(2, 100)
        order: list[int] = []
        assert limit.try_acquire(2, 20)

        async def enter(number: int, size: int) -> None:
            await limit.acquire(1, size)
            order.append(number)

        tasks = [asyncio.create_task(enter(n, size)) for n, size in enumerate((95, 1, 1))]
        await asyncio.sleep(0)
        assert limit.waiting == 3
        limit.release(1, 10)
        await asyncio.sleep(0)
        assert order == [], "the large one is first, and no other overtakes it"
        limit.release(1, 10)
        await asyncio.sleep(0.001)
        assert order == [0, 1]
        limit.release(1, 95)
        await asyncio.gather(*tasks)
        assert (order, limit.count, limit.waiting) == ([0, 1, 2], 2, 0)

    run(main())


def test_a_cancelled_waiter_admits_others() -> None:
    async def main() -> None:
        limit = InFlightLimit(1, 100)
        assert limit.try_acquire(1, 10)
        first = asyncio.create_task(limit.acquire(1, 10))
        second = asyncio.create_task(limit.acquire(1, 10))
        await asyncio.sleep(0)

        first.cancel()
        limit.release(1, 10)
        await second

        assert (limit.count, limit.waiting, first.cancelled()) == (1, 0, True)

    run(main())


def test_a_cancelled_admitted_waiter_counts_no_longer() -> None:
    async def main() -> None:
        limit = InFlightLimit(1, 100)
        assert limit.try_acquire(1, 10)
        waiting = asyncio.create_task(limit.acquire(1, 10))
        await asyncio.sleep(0)

        limit.release(1, 10)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

        assert limit.count == 0

    run(main())


def test_a_caller_can_wait_until_nothing_is_in_flight() -> None:
    async def main() -> None:
        limit = InFlightLimit(5, 100)
        await limit.wait_empty()
        assert limit.try_acquire(2, 10)
        empty = asyncio.create_task(limit.wait_empty())
        await asyncio.sleep(0)
        limit.release(1, 5)
        await asyncio.sleep(0)
        assert not empty.done()
        limit.release(1, 5)
        await empty

    run(main())


def test_the_limit_is_checked_while_a_caller_waits() -> None:
    async def main() -> list[bool]:
        limit, watched = InFlightLimit(1, 100), []
        await limit.acquire(1, 1)
        watched.append(limit.has_waiters)

        waiting = asyncio.create_task(limit.acquire(1, 1))
        await asyncio.sleep(0)
        watched.append(limit.has_waiters)
        limit.release(1, 1)
        await waiting
        watched.append(limit.has_waiters)

        empty = asyncio.create_task(limit.wait_empty())
        await asyncio.sleep(0)
        watched.append(limit.has_waiters)
        limit.release(1, 1)
        await empty
        return [*watched, limit.has_waiters]

    assert run(main()) == [False, True, False, True, False]
