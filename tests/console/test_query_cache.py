"""QueryCache that are shared."""

import asyncio

import pytest

from pocketmq.console.site import MAX_CACHED, QueryCache
from pocketmq.errors import CallTimedOut, NetworkError
from pocketmq.testing import FakeClock


def test_ten_concurrent_requests_cause_one_query() -> None:
    asked = 0

    async def query() -> int:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        return asked

    async def all_at_once() -> list[int]:
        cache = QueryCache(FakeClock(), cache_s=2, timeout_s=5)
        return await asyncio.gather(*(cache.get("key", query) for _ in range(10)))

    assert asyncio.run(all_at_once()) == [1] * 10


def test_a_cached_answer_is_used_until_it_expires_or_something_changes() -> None:
    clock = FakeClock()
    cache = QueryCache(clock, cache_s=2, timeout_s=5)
    asked: list[int] = []

    async def query() -> int:
        asked.append(1)
        return len(asked)

    async def story() -> None:
        assert await cache.get("key", query) == 1
        assert await cache.get("key", query) == 1
        clock.advance_ms(3_000)
        assert await cache.get("key", query) == 2
        cache.clear()
        assert await cache.get("key", query) == 3

    asyncio.run(story())


def test_an_error_is_returned_to_all_waiting_and_not_cached() -> None:
    outcomes: list[object] = [NetworkError("away"), 7]

    async def query() -> object:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def story() -> None:
        cache = QueryCache(FakeClock(), cache_s=2, timeout_s=5)
        both = await asyncio.gather(*(cache.get("key", query) for _ in range(2)), return_exceptions=True)
        assert [type(one) for one in both] == [NetworkError, NetworkError]
        assert await cache.get("key", query) == 7

    asyncio.run(story())


def test_a_query_beyond_the_time_limit_is_an_error() -> None:
    async def story() -> None:
        cache = QueryCache(FakeClock(), cache_s=2, timeout_s=0.01)
        with pytest.raises(CallTimedOut, match=r"did not answer within 0.01 s"):
            await cache.get("key", asyncio.Event().wait)

    asyncio.run(story())


def test_the_cache_has_a_limit() -> None:
    async def nothing() -> None:
        return None

    async def story() -> int:
        cache = QueryCache(FakeClock(), cache_s=2, timeout_s=5)
        for number in range(MAX_CACHED + 5):
            await cache.get(number, nothing)
        return len(cache)

    assert asyncio.run(story()) == MAX_CACHED
