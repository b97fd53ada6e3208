"""Held pulls: what wakes them, and when."""

import asyncio
import itertools
from pathlib import Path

import pytest

from pocketmq.broker.reads.arrivals import Arrivals
from pocketmq.broker.reads.filters import EVERYTHING, Filter, Filters
from pocketmq.files import DiskFiles
from pocketmq.model.subscription import ExpressionType, Subscription
from pocketmq.protocol.record import encode_record
from pocketmq.store.log.segments import OpenFiles
from pocketmq.store.queues.consume_queue import Arrival, ConsumeQueue
from pocketmq.testing import virtual_loop

TAG_A = Filters().of(Subscription.parse("T", "a"))
RED = Filters().of(Subscription.parse("T", "colour = 'red'", ExpressionType.SQL92))
CODE_A, CODE_B = 97, 98


def record(properties: bytes) -> bytes:
    return encode_record(b"T", 0, 0, 0, b"body", properties, 0, 0, 0, bytes(8), 0, bytes(8))


RECORDS = {100: record(b"colour\x01red\x02"), 200: record(b"colour\x01blue\x02")}


def arrivals(max_waiting: int = 10) -> Arrivals:
    return Arrivals(RECORDS.get, max_waiting=max_waiting, skip_delay_s=5.0)


def arrival(log_offset: int = 100, tags_code: int = 0, topic: str = "T", queue_id: int = 0) -> Arrival:
    queue = ConsumeQueue(topic, queue_id, Path("none"), OpenFiles(DiskFiles(), 1), 10)
    return queue, log_offset, len(RECORDS[100]), tags_code


async def waited(held: Arrivals, wanted: Filter = EVERYTHING, seconds: float = 15.0) -> float:
    """How long a pull of queue 0 of T was held."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    await held.wait("T", 0, wanted, seconds)
    return loop.time() - began


async def after(seconds: float, held: Arrivals, *news: Arrival) -> None:
    await asyncio.sleep(seconds)
    held.notify(news)


def test_a_message_of_its_queue_wakes_a_pull_at_once() -> None:
    async def story() -> None:
        held = arrivals()

        waited_s, _ = await asyncio.gather(waited(held), after(2.0, held, arrival()))

        assert waited_s == pytest.approx(2.0)
        assert not len(held)

    virtual_loop.run(story())


@pytest.mark.parametrize("other", [arrival(topic="U"), arrival(queue_id=1)])
def test_a_message_of_another_queue_wakes_no_pull(other: Arrival) -> None:
    async def story() -> None:
        held = arrivals()

        waited_s, _ = await asyncio.gather(waited(held), after(2.0, held, other))

        assert waited_s == pytest.approx(15.0)

    virtual_loop.run(story())


@pytest.mark.parametrize(
    ("wanted", "news", "waits_s"),
    [
        (TAG_A, arrival(tags_code=CODE_A), 1.0),
        (TAG_A, arrival(tags_code=CODE_B), 6.0),
        (RED, arrival(100), 1.0),
        (RED, arrival(200), 6.0),
    ],
)
def test_a_matching_message_wakes_at_once_and_others_after_a_delay(
    wanted: Filter, news: Arrival, waits_s: float
) -> None:
    async def story() -> None:
        held = arrivals()

        waited_s, _ = await asyncio.gather(waited(held, wanted), after(1.0, held, news))

        assert waited_s == pytest.approx(waits_s)

    virtual_loop.run(story())


def test_the_delay_starts_with_the_first_unmatched_message_and_ends_at_the_deadline_of_the_pull() -> None:
    async def story() -> None:
        held = arrivals()
        unwanted = arrival(tags_code=CODE_B)

        many, *_ = await asyncio.gather(
            waited(held, TAG_A), *(after(second, held, unwanted) for second in (1, 2, 3, 4))
        )
        late, _ = await asyncio.gather(waited(held, TAG_A), after(12.0, held, unwanted))
        wanted, *_ = await asyncio.gather(
            waited(held, TAG_A), after(1.0, held, unwanted), after(2.0, held, arrival(tags_code=CODE_A))
        )

        assert (many, late, wanted) == pytest.approx((6.0, 15.0, 2.0))
        assert not [one for one in asyncio.get_running_loop()._scheduled if not one.cancelled()]  # type: ignore[attr-defined]

    virtual_loop.run(story())


def test_a_pull_without_a_message_is_held_until_its_deadline() -> None:
    async def story() -> None:
        assert await waited(arrivals(), seconds=12.5) == pytest.approx(12.5)

    virtual_loop.run(story())


def test_a_withdrawn_record_does_not_wake_by_its_properties() -> None:
    async def story() -> None:
        held = arrivals()
        gone = (arrival()[0], 999, 10, 0)

        waited_s, _ = await asyncio.gather(waited(held, RED), after(1.0, held, gone))

        assert waited_s == pytest.approx(6.0)

    virtual_loop.run(story())


def test_a_cancelled_pull_is_removed_with_its_timer() -> None:
    async def story() -> None:
        held = arrivals()
        pull = asyncio.ensure_future(waited(held))
        await asyncio.sleep(1.0)
        assert len(held) == 1

        pull.cancel()
        await asyncio.gather(pull, return_exceptions=True)

        assert not len(held)

    virtual_loop.run(story())


def test_all_pulls_of_a_queue_or_topic_can_be_woken() -> None:
    async def story() -> None:
        held = arrivals()

        async def wake() -> None:
            await asyncio.sleep(1.0)
            held.wake("T", 1)
            held.wake_topic("U")
            await asyncio.sleep(1.0)
            held.wake("T", 0)

        first, _ = await asyncio.gather(waited(held, RED), wake())
        assert first == pytest.approx(2.0)

        loop = asyncio.get_running_loop()
        loop.call_later(3.0, held.wake_topic, "T")
        assert await waited(held, RED) == pytest.approx(3.0)

    virtual_loop.run(story())


def test_a_new_waiter_sees_whether_readers_were_woken_since() -> None:
    async def story() -> None:
        held = arrivals()
        seen = [held.wake_calls]

        held.wake("T", 0)
        seen.append(held.wake_calls)
        held.wake_topic("T")
        seen.append(held.wake_calls)
        held.notify([arrival()])
        seen.append(held.wake_calls)
        held.stop()
        seen.append(held.wake_calls)

        assert [later - earlier for earlier, later in itertools.pairwise(seen)] == [1, 1, 0, 1]

    virtual_loop.run(story())


def test_held_pulls_are_limited_and_none_is_accepted_after_the_stop() -> None:
    async def story() -> None:
        held = arrivals(max_waiting=1)
        rooms = [held.has_capacity]

        pull = asyncio.ensure_future(waited(held))
        await asyncio.sleep(1.0)
        rooms.append(held.has_capacity)
        held.stop()

        assert await pull == pytest.approx(1.0)
        assert [*rooms, held.has_capacity] == [True, False, False]

    virtual_loop.run(story())
