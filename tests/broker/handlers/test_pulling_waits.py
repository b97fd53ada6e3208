"""Pulls that wait for a message: what wakes them, what answers them, and that none is missed."""

import asyncio
import gc
from collections.abc import Awaitable

import pytest
from tests.broker.handlers.pulling_kit import bodies, filled
from tests.broker.running import (
    in_virtual_time,
    offsets_of,
    pulling,
    request,
    running,
    sending,
    settled,
)

from pocketmq.broker.handlers.pulling import MAX_HOLD_S
from pocketmq.broker.settings import FlowSettings
from pocketmq.codes import PullFlag, RequestCode, ResponseCode
from pocketmq.model.names import parse_topic
from pocketmq.protocol.api.administration import UpdateGroupForbidden
from pocketmq.protocol.api.messages import ResetOffset
from pocketmq.protocol.command import Command
from pocketmq.store.queues.consume_queue import ConsumeQueue

pytestmark = pytest.mark.usefixtures("twin")
FOUND, NOTHING, RETRY, MOVED = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
PULL = RequestCode.PULL_MESSAGE


async def took(pull: Awaitable[Command]) -> tuple[float, Command]:
    loop = asyncio.get_running_loop()
    began = loop.time()
    answer = await pull
    return round(loop.time() - began, 1), answer


@pytest.mark.parametrize("code", [PULL, RequestCode.LITE_PULL_MESSAGE])
@pytest.mark.parametrize("binary", [False, True])
@in_virtual_time
async def test_a_pull_at_the_end_waits_until_a_message_arrives(code: RequestCode, binary: bool) -> None:
    async with running() as broker:
        client, other = await filled(broker, 3), await broker.connect()
        loop = asyncio.get_running_loop()
        pull = asyncio.ensure_future(client.ask(code, pulling(3, wait_ms=15_000), binary=binary))
        await asyncio.sleep(7)
        assert not pull.done()
        assert len(broker.parts.state.arrivals) == 1

        began = loop.time()
        await other.sent(b"news")
        answer = await pull

        assert loop.time() - began < 0.01
        assert (answer.code, bodies(answer), offsets_of(answer)) == (FOUND, [b"news"], (4, 0, 4))
        assert not len(broker.parts.state.arrivals)


@in_virtual_time
async def test_a_pull_that_is_woken_reads_its_queue_entries_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as broker:
        client, other = await filled(broker, 3), await broker.connect()
        pull = asyncio.ensure_future(client.ask(PULL, pulling(3, wait_ms=15_000)))
        await settled()
        reads: list[int] = []
        read = ConsumeQueue.read

        def counted(queue: ConsumeQueue, offset: int, count: int) -> bytes:
            reads.append(offset)
            return read(queue, offset, count)

        monkeypatch.setattr(ConsumeQueue, "read", counted)
        await other.sent(b"news")

        assert bodies(await pull) == [b"news"]
        assert reads == [3]


@pytest.mark.parametrize("has_queue", [False, True])
@in_virtual_time
async def test_the_first_message_of_a_queue_wakes_a_pull_at_offset_zero(has_queue: bool) -> None:
    async with running() as broker:
        client = await broker.connect()
        broker.make_topic()
        if has_queue:
            broker.store.queue(parse_topic("T"), 0)

        pull = asyncio.ensure_future(client.pull(0, wait_ms=15_000))
        await asyncio.sleep(3)
        await client.sent(b"first")

        assert bodies(await pull) == [b"first"]


@pytest.mark.parametrize("wait_ms", [500, 15_000, 20_000])
@in_virtual_time
async def test_a_pull_without_a_message_is_answered_at_its_deadline(wait_ms: int) -> None:
    async with running() as broker:
        client = await filled(broker, 3)

        seconds, answer = await took(client.pull(3, wait_ms=wait_ms))

        assert seconds == wait_ms / 1000
        assert (answer.code, answer.remark, offsets_of(answer)) == (NOTHING, "OFFSET_OVERFLOW_ONE", (3, 0, 3))
        assert not len(broker.parts.state.arrivals)


@in_virtual_time
async def test_a_pull_waits_at_most_a_minute() -> None:
    async with running(idle_s=600) as broker:
        client = await filled(broker, 3)

        seconds, _ = await took(client.pull(3, wait_ms=10**9))

        assert seconds == MAX_HOLD_S


@pytest.mark.parametrize("wait_ms", [-1, 0])
@in_virtual_time
async def test_a_pull_with_a_wait_of_zero_is_answered_at_once(wait_ms: int) -> None:
    async with running() as broker:
        client = await filled(broker, 3)
        header = pulling(3, flags=PullFlag.SUBSCRIPTION | PullFlag.SUSPEND)
        header.suspend_timeout_millis = wait_ms

        assert (await client.ask(PULL, header)).code == NOTHING
        assert not broker.parts.state.arrivals.count


@in_virtual_time
async def test_without_long_polling_a_pull_waits_for_a_short_time() -> None:
    async with running(long_polling=False, short_polling_ms=1_000) as broker:
        client = await filled(broker, 3)

        seconds, answer = await took(client.pull(3, wait_ms=15_000))

        assert (seconds, answer.code) == (1.0, NOTHING)


@pytest.mark.parametrize(
    ("expression", "kind", "wanted", "unwanted"),
    [("a", "TAG", {"TAGS": "a"}, {"TAGS": "b"}), ("n > 3", "SQL92", {"n": "4"}, {"n": "3"})],
)
@in_virtual_time
async def test_a_matching_message_wakes_a_pull_at_once_and_others_advance_it_later(
    expression: str, kind: str, wanted: dict[str, str], unwanted: dict[str, str]
) -> None:
    async with running(hold_check_ms=5_000) as broker:
        client, other = await filled(broker, 3), await broker.connect()

        pull = asyncio.ensure_future(took(client.pull(3, wait_ms=15_000, expression=expression, kind=kind)))
        await asyncio.sleep(1)
        await other.sent(b"not this", properties=unwanted)
        await asyncio.sleep(1)
        assert not pull.done()
        await other.sent(b"this", properties=wanted)
        seconds, answer = await pull
        assert (seconds, bodies(answer), offsets_of(answer)[0]) == (2.0, [b"this"], 5)

        pull = asyncio.ensure_future(took(client.pull(5, wait_ms=15_000, expression=expression, kind=kind)))
        await asyncio.sleep(1)
        for _ in range(3):
            await other.sent(b"not this", properties=unwanted)
        seconds, answer = await pull
        assert (seconds, answer.code, offsets_of(answer)[0]) == (6.0, RETRY, 8)


@in_virtual_time
async def test_messages_of_another_queue_do_not_wake_a_pull() -> None:
    async with running() as broker:
        client = await filled(broker, 3)

        pull = asyncio.ensure_future(took(client.pull(3, wait_ms=15_000)))
        await settled()
        await client.sent(queue_id=1)
        await client.sent(topic="Other")

        assert (await pull)[0] == 15.0


@in_virtual_time
async def test_a_message_in_the_same_loop_iteration_as_the_pull_is_not_missed() -> None:
    async with running() as broker:
        client, other = await filled(broker, 3), await broker.connect()

        for number in range(3, 40):
            sent = asyncio.ensure_future(client.sent(b"%d" % number))
            late = asyncio.ensure_future(other.sent(b"%d" % number, queue_id=1))
            seconds, answer = await took(client.pull(number, wait_ms=15_000))
            await asyncio.gather(sent, late)

            assert (seconds, bodies(answer)) == (0.0, [b"%d" % number])


@in_virtual_time
async def test_a_message_that_is_stored_before_the_pull_began_to_wait_is_not_missed() -> None:
    async with running() as broker:
        client = await filled(broker, 3)

        (pull,) = broker.serve_now(client, request(PULL, pulling(3, wait_ms=15_000)))
        broker.store.stage(broker.store.queue(parse_topic("T"), 0), b"now", b"", 0, 0, 0, bytes(8))
        broker.store.end_turn()
        assert not len(broker.parts.state.arrivals)

        seconds, answer = await took(pull)
        assert (seconds, bodies(answer)) == (0.0, [b"now"])


@in_virtual_time
async def test_a_reset_or_a_stop_before_the_pull_began_to_wait_is_not_missed() -> None:
    async with running() as broker:
        client = await filled(broker, 3)

        (pull,) = broker.serve_now(client, request(PULL, pulling(3, wait_ms=15_000)))
        broker.parts.state.offsets.reset("G", "T", {0: 1})
        broker.parts.state.arrivals.wake("T", 0)
        seconds, answer = await took(pull)
        assert (seconds, answer.code) == (0.0, MOVED)

        (pull,) = broker.serve_now(client, request(PULL, pulling(3, wait_ms=15_000)))
        broker.parts.state.arrivals.stop()
        seconds, answer = await took(pull)
        assert (seconds, answer.code) == (0.0, NOTHING)


@in_virtual_time
async def test_a_reset_wakes_waiting_pulls_also_in_the_same_loop_iteration() -> None:
    async with running() as broker:
        client, admin = await filled(broker, 9), await broker.connect()
        reset = ResetOffset("G", "T", -1, True, 0, 4)

        pull = asyncio.ensure_future(took(client.pull(9, wait_ms=15_000)))
        await asyncio.sleep(3)
        await admin.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)
        seconds, answer = await pull
        assert (seconds, answer.code, offsets_of(answer)[0]) == (3.0, MOVED, 4)

        pull = asyncio.ensure_future(took(client.pull(9, wait_ms=15_000)))
        same = asyncio.ensure_future(client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset))
        seconds, answer = await pull
        await same
        assert (seconds, answer.code, offsets_of(answer)[0]) == (0.0, MOVED, 4)


@in_virtual_time
async def test_deleting_a_topic_wakes_its_waiting_pulls() -> None:
    async with running() as broker:
        client, admin = await filled(broker, 1), await broker.connect()

        pull = asyncio.ensure_future(took(client.pull(1, wait_ms=15_000)))
        await asyncio.sleep(2)
        await admin.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")

        seconds, answer = await pull
        assert (seconds, answer.code) == (2.0, ResponseCode.TOPIC_NOT_EXIST)


@in_virtual_time
async def test_a_held_pull_does_not_restore_its_deleted_group() -> None:
    async with running() as broker:
        client, admin = await filled(broker, 1), await broker.connect()
        pull = asyncio.ensure_future(client.pull(1, wait_ms=15_000))
        await asyncio.sleep(2)

        await admin.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="G")
        await client.sent()

        answer = await pull
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert "G" not in broker.parts.state.groups


@in_virtual_time
async def test_a_forbidden_topic_is_reported_when_the_pull_wakes() -> None:
    async with running() as broker:
        client = await filled(broker, 1)
        pull = asyncio.ensure_future(client.pull(1, wait_ms=15_000))
        await asyncio.sleep(2)

        await client.ask(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, UpdateGroupForbidden("G", "T", readable=False))
        await client.sent()

        answer = await pull
        assert (answer.code, answer.ext) == (ResponseCode.NO_PERMISSION, {"forbiddenType": "5"})


@in_virtual_time
async def test_stopping_answers_all_waiting_pulls() -> None:
    async with running() as broker:
        client = await filled(broker, 3)
        pulls = [asyncio.ensure_future(took(client.pull(3, wait_ms=15_000))) for _ in range(3)]
        await asyncio.sleep(2)

        await broker.broker.stop()

        assert [(seconds, answer.code) for seconds, answer in await asyncio.gather(*pulls)] == [(2.0, NOTHING)] * 3


@in_virtual_time
async def test_a_pull_is_dropped_with_its_connection() -> None:
    async with running() as broker:
        client = await filled(broker, 3)
        await settled()
        before = len(asyncio.all_tasks())
        pulls = [asyncio.ensure_future(client.pull(3, wait_ms=15_000)) for _ in range(20)]
        await settled()
        assert len(broker.parts.state.arrivals) == 20

        client.peer.connection.abort()
        await asyncio.gather(*pulls, return_exceptions=True)
        await settled()

        assert not len(broker.parts.state.arrivals)
        assert len(asyncio.all_tasks()) == before
        scheduled = [handle for handle in asyncio.get_running_loop()._scheduled if not handle.cancelled()]  # type: ignore[attr-defined]
        assert not [handle for handle in scheduled if "_WaitingPull" in repr(handle)]
        gc.collect()
        assert not [one for one in gc.get_objects() if type(one).__name__ == "_WaitingPull"]


@in_virtual_time
async def test_a_connection_lost_in_the_iteration_of_its_pull_is_removed_completely() -> None:
    async with running() as broker:
        client = await filled(broker, 3)
        peer = broker.peer_of(client)
        (pull,) = broker.serve_now(client, request(PULL, pulling(3, wait_ms=15_000)))

        peer.connection.abort()
        await asyncio.gather(pull, return_exceptions=True)
        await settled()

        assert not len(broker.parts.state.arrivals)
        assert not peer.serving


@in_virtual_time
async def test_above_the_limit_of_held_pulls_a_pull_is_answered_at_once() -> None:
    async with running(flow=FlowSettings(max_held_pulls=3)) as broker:
        client, other = await filled(broker, 3), await broker.connect()

        pulls = [took(one.pull(3, wait_ms=10_000)) for one in (client, other) * 4]
        waited = sorted((seconds, answer.code) for seconds, answer in await asyncio.gather(*pulls))

        assert waited == [(0.0, NOTHING)] * 5 + [(10.0, NOTHING)] * 3


@in_virtual_time
async def test_a_one_way_pull_is_neither_held_nor_answered() -> None:
    async with running() as broker:
        client = await filled(broker, 3)

        client.tell(PULL, pulling(3, wait_ms=1_000))
        client.tell(PULL, pulling(0, commit=2, flags=PullFlag.SUBSCRIPTION | PullFlag.COMMIT_OFFSET))
        await settled()
        assert not len(broker.parts.state.arrivals)
        await client.sent()
        await asyncio.sleep(2)

        assert client.peer.unmatched == 0
        assert broker.parts.state.offsets.stored("G", "T", 0) == 2


@in_virtual_time
async def test_one_message_wakes_all_pulls_of_its_queue() -> None:
    async with running() as broker:
        clients = [await broker.connect() for _ in range(10)]
        broker.make_topic()

        pulls = [
            asyncio.ensure_future(client.pull(0, group=f"G{index}", wait_ms=15_000))
            for index, client in enumerate(clients)
        ]
        await settled()
        await clients[0].ask(RequestCode.SEND_MESSAGE_V2, sending(), b"to all")

        assert [bodies(answer) for answer in await asyncio.gather(*pulls)] == [[b"to all"]] * 10
