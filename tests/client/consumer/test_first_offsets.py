"""First offsets: queries, decisions, and the offsets that are saved at once."""

import asyncio
from typing import cast

import pytest

from pocketmq.client.cluster.calls import OffsetCalls
from pocketmq.client.consumer.first_offsets import SECOND_CHECK_S, FirstOffsets
from pocketmq.client.consumer.offsets import Offsets, RemoteOffsets
from pocketmq.errors import ConnectFailed
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.bodies.clients import ConsumeFromWhere
from pocketmq.testing import run

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
TIME = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
QUEUES = [MessageQueue("T", "broker-a", number) for number in range(3)]
RETRY = MessageQueue("%RETRY%G", "broker-a", 0)


class Brokers:
    """Queues from offset 10 to 99; offset 50 has the requested time."""

    def __init__(self) -> None:
        self.kept: dict[MessageQueue, int] = {}
        self.away: set[MessageQueue] = set()

    def _targets(self, queue: MessageQueue) -> None:
        if queue in self.away:
            raise ConnectFailed("away")

    async def smallest(self, queue: MessageQueue) -> int:
        self._targets(queue)
        return 10

    async def largest(self, queue: MessageQueue) -> int:
        self._targets(queue)
        return 99

    async def at_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        self._targets(queue)
        assert timestamp_ms == 1234
        return 50

    async def of_group(self, group: str, queue: MessageQueue) -> int | None:
        self._targets(queue)
        return self.kept.get(queue)

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        self._targets(queue)
        self.kept[queue] = offset


def first_offsets(brokers: Brokers, from_where: ConsumeFromWhere) -> FirstOffsets:
    calls = cast("OffsetCalls", brokers)
    return FirstOffsets(calls, Offsets(RemoteOffsets(calls, "G")), from_where, 1234)


@pytest.mark.parametrize(("from_where", "offset"), [(FIRST, 10), (LAST, 99), (TIME, 50)])
def test_the_first_member_of_a_new_group_sets_an_offset_in_every_queue(
    from_where: ConsumeFromWhere, offset: int
) -> None:
    brokers = Brokers()

    assert run(first_offsets(brokers, from_where).find(QUEUES[1], QUEUES)) == offset
    assert brokers.kept == dict.fromkeys(QUEUES, offset)


@pytest.mark.parametrize("from_where", [FIRST, LAST, TIME])
def test_a_stored_offset_is_used_and_nothing_is_saved(from_where: ConsumeFromWhere) -> None:
    brokers = Brokers()
    brokers.kept[QUEUES[0]] = 77

    assert run(first_offsets(brokers, from_where).find(QUEUES[0], QUEUES)) == 77
    assert brokers.kept == {QUEUES[0]: 77}


@pytest.mark.parametrize("from_where", [FIRST, LAST, TIME])
def test_a_retry_queue_is_read_from_its_first_message(from_where: ConsumeFromWhere) -> None:
    brokers = Brokers()

    assert run(first_offsets(brokers, from_where).find(RETRY, [RETRY])) == 10
    assert brokers.kept == {RETRY: 10}


def test_a_queue_that_is_younger_than_the_group_is_read_from_its_first_message() -> None:
    brokers = Brokers()
    brokers.kept[QUEUES[0]] = 77

    assert run(first_offsets(brokers, LAST).find(QUEUES[1], QUEUES)) == 10
    assert brokers.kept == {QUEUES[0]: 77, QUEUES[1]: 10}


def test_a_queue_added_at_run_time_is_read_from_its_first_message() -> None:
    async def main() -> None:
        brokers = Brokers()
        first = first_offsets(brokers, LAST)
        assert await first.find(QUEUES[0], QUEUES[:1]) == 99
        brokers.kept[QUEUES[0]] = 0
        assert await first.find(QUEUES[1], QUEUES[:2]) == 10

        first.forget("T")
        brokers.kept.clear()
        assert await first.find(QUEUES[2], QUEUES) == 99

    run(main())


def test_an_unavailable_broker_affects_only_its_own_queues() -> None:
    async def main() -> None:
        brokers = Brokers()
        brokers.away = {QUEUES[2]}
        first = first_offsets(brokers, LAST)

        assert await first.find(QUEUES[0], QUEUES) == 99
        assert brokers.kept == {QUEUES[0]: 99, QUEUES[1]: 99}
        with pytest.raises(ConnectFailed):
            await first.find(QUEUES[2], QUEUES)

    run(main())


def test_an_old_group_waits_once_for_all_queues_without_an_offset() -> None:
    async def main() -> None:
        brokers = Brokers()
        queues = [MessageQueue("T", "broker-a", number) for number in range(50)]
        brokers.kept[queues[0]] = 77
        first, loop = first_offsets(brokers, LAST), asyncio.get_running_loop()
        began = loop.time()

        assert [await first.find(queue, queues) for queue in queues] == [77] + 49 * [10]
        assert loop.time() - began < 2 * SECOND_CHECK_S

    run(main())


def test_an_offset_saved_by_another_member_in_between_is_used() -> None:
    async def main() -> None:
        brokers = Brokers()
        brokers.kept[QUEUES[0]] = 77
        first = first_offsets(brokers, LAST)
        asyncio.get_running_loop().call_later(SECOND_CHECK_S / 2, brokers.kept.update, dict.fromkeys(QUEUES, 98))

        assert [await first.find(queue, QUEUES) for queue in QUEUES[1:]] == [98, 98]

    run(main())
