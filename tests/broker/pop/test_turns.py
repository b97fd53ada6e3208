"""Pops and acks in turns: one write for all, and a turn that fails or waits leaves leases and positions as they were."""

import asyncio
import errno
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from random import Random
from typing import Any

import pytest
from tests.broker.pop.pops import Leased, ack, ack_all, batch_of, bodies, change, leased, pop, popping, with_messages
from tests.broker.running import RunningBroker, in_virtual_time, request, running, sending, settled
from tests.broker.turns_kit import asked, sent, timed

from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.protocol.api.administration import ForTopic
from pocketmq.protocol.api.messages import AckMessage, ChangeInvisibleTime, ResetOffset
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.protocol.command import Command
from pocketmq.protocol.pop import Ack
from pocketmq.store.settings import FlushMode
from pocketmq.testing import FaultyFiles

pytestmark = pytest.mark.usefixtures("twin")
DONE, BUSY, ERROR = ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE
TIMERS = "rmq_sys_wheel_timer"
Slow = Callable[[], AbstractAsyncContextManager[RunningBroker]]


@pytest.fixture(params=["a thread always", "a thread where the disk would block"])
def slow(request: pytest.FixtureRequest) -> Slow:
    """A broker whose loop does not wait for a stalled write."""
    if request.param == "a thread always":
        return partial(running, store={"slow_write_ms": 0})
    return lambda: running(disk=FaultyFiles(nowait=True))


def log_writes(broker: RunningBroker) -> int:
    return sum(one.kind == "write" and "commitlog" in one.path for one in broker.disk.operations)


def an_ack(one: Leased, **changes: Any) -> Command:
    header = AckMessage("G", one.topic, one.handle.queue_id, one.handle.text(), one.handle.offset)
    for name, value in changes.items():
        setattr(header, name, value)
    return request(RequestCode.ACK_MESSAGE, header)


def a_change(one: Leased, invisible_ms: int) -> Command:
    header = ChangeInvisibleTime("G", "T", 0, one.handle.text(), one.handle.offset, invisible_ms)
    return request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)


def a_pop(**fields: Any) -> Command:
    return request(RequestCode.POP_MESSAGE, popping(**fields))


def records(broker: RunningBroker) -> list[tuple[str, bytes]]:
    """The check points and acks that wait in the timer, by tag."""
    return [(message.properties["TAGS"], message.body) for message in broker.stored(TIMERS)]


async def codes(answers: "list[asyncio.Future[Command]]") -> list[int]:
    return [(await one).code for one in answers]


def open_messages(broker: RunningBroker) -> int:
    return sum(broker.parts.state.leases.in_flight.values())


def nothing_is_half_done(broker: RunningBroker) -> None:
    leases = broker.parts.state.leases
    assert all(not lease.acking for lease in leases._by_key.values())
    assert broker.parts.state.appender.effects == []
    queues = list(broker.store._parts.queues)
    assert [queue.next_offset - queue.max_offset for queue in queues] == [0] * len(queues)


@in_virtual_time
async def test_all_acks_of_one_read_are_one_write_and_one_record_of_each_lease() -> None:
    async with running() as broker:
        client = await with_messages(broker, 6)
        first, second = await pop(client, most=4), await pop(client)
        writes, stored = log_writes(broker), len(records(broker))

        answers = broker.serve_now(client, *map(an_ack, [*first[:3], second[0], first[3], second[1]]))

        assert await codes(answers) == [DONE] * 6
        assert log_writes(broker) == writes + 1
        acks = [(tag, Ack.decode(body).acked()) for tag, body in records(broker)[stored:]]
        assert acks == [("bAck", (0, 1, 2, 3)), ("bAck", (4, 5))]
        assert len(broker.parts.state.leases) == 0


@in_virtual_time
async def test_pops_acks_changes_and_sends_of_one_read_share_one_write() -> None:
    async with running() as broker:
        client = await with_messages(broker, 6)
        one, two, three = await pop(client, most=3)
        writes = log_writes(broker)

        a_send = request(RequestCode.SEND_MESSAGE_V2, sending(), b"sent")
        commands = [a_send, an_ack(one), a_pop(most=2), a_change(two, 5_000), an_ack(three), a_pop(most=2)]
        answers = [await answer for answer in broker.serve_now(client, *commands)]

        assert [answer.code for answer in answers] == [DONE] * 6
        assert log_writes(broker) == writes + 1
        assert [got.body for answer in (answers[2], answers[5]) for got in leased(answer)] == [b"3", b"4", b"5"]
        assert open_messages(broker) == 4
        nothing_is_half_done(broker)


@in_virtual_time
async def test_acks_of_many_connections_share_one_write() -> None:
    async with running() as broker:
        client = await with_messages(broker, 8)
        members = [await broker.connect() for _ in range(8)]
        leases = [(await pop(member, most=1))[0] for member in members]
        writes = log_writes(broker)

        answers = await asyncio.gather(*(ack(member, one) for member, one in zip(members, leases, strict=True)))

        assert {answer.code for answer in answers} == {DONE}
        assert log_writes(broker) == writes + 1
        assert await pop(client) == []


@in_virtual_time
async def test_a_failed_write_gives_a_turn_back_completely() -> None:
    async with running() as broker:
        client = await with_messages(broker, 6)
        one, two, three = await pop(client, most=3, invisible_ms=5_000)
        with broker.disk.fail("write", errno.EIO, "*commitlog*"):
            commands = [an_ack(one), a_change(two, 90_000), a_pop(most=2), an_ack(one), an_ack(three), a_pop()]
            answers = [await answer for answer in broker.serve_now(client, *commands)]

        assert {answer.code for answer in answers} == {ERROR}
        assert (answers[1].ext or {})["popTime"] == (answers[2].ext or {})["popTime"] == "0"
        assert broker.parts.state.positions.get(("G", "T", 0)) == 3
        assert open_messages(broker) == 3
        nothing_is_half_done(broker)
        await asyncio.sleep(1)
        assert await bodies(client) == [b"3", b"4", b"5"]
        assert (await ack(client, three)).code == DONE
        await asyncio.sleep(5)
        assert await bodies(client) == [b"0", b"1"]


@in_virtual_time
async def test_acks_wait_for_a_stalled_write_and_other_requests_do_not(slow: Slow) -> None:
    async with slow() as broker:
        client, other = await with_messages(broker), await broker.connect()
        one, two, *_ = await pop(client)
        stall = broker.stall_writes()
        first = asked(client, an_ack(one).code, AckMessage("G", "T", 0, one.handle.text(), 0))
        await settled()
        assert broker.store.busy_since is not None
        again = asked(other, RequestCode.ACK_MESSAGE, AckMessage("G", "T", 0, one.handle.text(), 0))
        next_ack = asked(other, RequestCode.ACK_MESSAGE, AckMessage("G", "T", 0, two.handle.text(), 1))
        empty_pop = await timed(other.ask(RequestCode.POP_MESSAGE, popping()))

        assert empty_pop.seconds < 0.1
        assert empty_pop.code == ResponseCode.POLLING_TIMEOUT
        assert (await timed(other.pull(0))).seconds < 0.1
        await asyncio.sleep(1)
        assert [answer.done() for answer in (first, again, next_ack)] == [False] * 3
        assert open_messages(broker) == 4, "no ack counts before it is stored"
        stall.release()

        assert [(await answer).code for answer in (first, again, next_ack)] == [DONE] * 3
        assert open_messages(broker) == 2
        nothing_is_half_done(broker)


@in_virtual_time
async def test_acks_are_refused_if_the_disk_stalls_longer_than_they_may_wait(slow: Slow) -> None:
    async with slow() as broker:
        client = await with_messages(broker)
        one, two, *_ = await pop(client)
        stall = broker.stall_writes()
        first = sent(client, b"under way")
        await settled()

        refused = await timed(ack(client, one))
        assert (refused.code, refused.words) == (BUSY, "TIMEOUT_CLEAN_QUEUE")
        stall.release()
        assert (await first).code == DONE
        assert (await ack(client, two)).code == DONE
        assert open_messages(broker) == 3


@in_virtual_time
async def test_a_write_that_fails_by_a_thread_gives_acks_and_pops_back(slow: Slow) -> None:
    async with slow() as broker:
        client = await with_messages(broker)
        one, two = await pop(client, most=2)
        stall = broker.stall_writes()
        broker.disk.fail("write", errno.EIO, "*commitlog*")
        answers = broker.serve_now(client, an_ack(one), a_change(two, 9_000), a_pop())
        await settled()
        stall.release()
        assert await codes(answers) == [ERROR] * 3

        await asyncio.sleep(1)
        assert open_messages(broker) == 2
        nothing_is_half_done(broker)
        assert await bodies(client) == [b"2", b"3"]
        assert (await ack_all(client, [one, two])).code == DONE
        assert open_messages(broker) == 2


@pytest.mark.parametrize("flush", [FlushMode.ASYNC, FlushMode.SYNC])
@in_virtual_time
async def test_with_sync_flush_acks_wait_for_one_sync(flush: FlushMode) -> None:
    async with running(store={"flush": flush}) as broker:
        client = await with_messages(broker)
        one, two, three, _ = await pop(client)
        syncs = broker.stall_syncs()
        answers = broker.serve_now(client, an_ack(one), an_ack(two), a_change(three, 5_000))
        await asyncio.sleep(0.1)

        assert [answer.done() for answer in answers] == [flush is FlushMode.ASYNC] * 3
        syncs.release()
        assert await codes(answers) == [DONE] * 3


@in_virtual_time
async def test_two_acks_of_one_message_in_one_turn_store_one_ack() -> None:
    async with running() as broker:
        client, other = await with_messages(broker), await broker.connect()
        one, two, *_ = await pop(client)
        stored = len(records(broker))

        first = broker.serve_now(client, an_ack(one), an_ack(one), an_ack(two, offset=0))
        second = broker.serve_now(other, an_ack(one))

        assert await codes([*first, *second]) == [DONE] * 4
        assert [Ack.decode(body).acked() for _, body in records(broker)[stored:]] == [(0,)]
        assert broker.parts.acks.stale == 3
        assert open_messages(broker) == 3


@pytest.mark.parametrize("ack_first", [True, False])
@in_virtual_time
async def test_of_an_ack_and_a_change_in_one_turn_the_first_counts(ack_first: bool) -> None:
    async with running() as broker:
        client = await with_messages(broker, 1)
        (one,) = await pop(client, invisible_ms=3_000)

        commands = [an_ack(one), a_change(one, 6_000)]
        answers = broker.serve_now(client, *(commands if ack_first else reversed(commands)))

        assert await codes(answers) == [DONE] * 2
        assert open_messages(broker) == (not ack_first)
        await asyncio.sleep(4)
        assert await bodies(client) == []
        await asyncio.sleep(4)
        assert await bodies(client) == ([] if ack_first else [b"0"])


@in_virtual_time
async def test_an_ack_during_a_reset_changes_nothing_of_the_new_leases() -> None:
    async with running() as broker:
        client = await with_messages(broker, 3)
        leases = await pop(client)
        reset = request(
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffset("G", "T", -1, is_force=True, queue_id=0, offset=0)
        )

        assert await codes(broker.serve_now(client, an_ack(leases[0]), reset, an_ack(leases[1]))) == [DONE] * 3
        answers = broker.serve_now(client, an_ack(leases[1]), a_pop(), an_ack(leases[2]))

        assert await codes(answers) == [DONE] * 3
        again = leased(await answers[1])
        assert [one.body for one in again] == [b"0", b"1", b"2"]
        assert open_messages(broker) == 3
        assert (await ack_all(client, again)).code == DONE
        assert open_messages(broker) == 0


@in_virtual_time
async def test_a_topic_deleted_in_a_turn_takes_its_leases_with_it(slow: Slow) -> None:
    async with slow() as broker:
        client = await with_messages(broker, 3)
        one, two = await pop(client, most=2, invisible_ms=2_000)
        deletion = request(RequestCode.DELETE_TOPIC_IN_BROKER, ForTopic("T"))
        stall = broker.stall_writes()

        answers = broker.serve_now(client, an_ack(one), a_pop(invisible_ms=2_000), deletion, an_ack(two), a_pop())
        await settled()
        stall.release()

        assert await codes(answers) == [DONE, DONE, DONE, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.TOPIC_NOT_EXIST]
        assert len(broker.parts.state.leases) == 0
        broker.parts.state.topics.put([TopicConfig("T", 1, 1)], 0)
        await client.sent(b"new")
        assert await bodies(client, group="Other") == [b"new"]
        nothing_is_half_done(broker)


@in_virtual_time
async def test_ten_thousand_pops_are_woken_together_and_each_message_is_leased_once() -> None:
    async with running(store={"log_file_bytes": 1 << 20}) as broker:
        broker.make_topic(queues=1)
        clients = [await broker.connect() for _ in range(5)]
        producer = await broker.connect()
        waiting = [
            asyncio.ensure_future(client.ask(RequestCode.POP_MESSAGE, popping(group=f"G{at}", poll_ms=20_000)))
            for at in range(2_000)
            for client in clients
        ]
        await asyncio.sleep(1)
        assert len(broker.parts.state.waiting_pops) == 10_000
        writes = log_writes(broker)

        await producer.sent(b"for each group once")
        await asyncio.sleep(5)

        answered = [one.result() for one in waiting if one.done()]
        assert len(answered) == 2_000
        assert {answer.code for answer in answered} == {DONE}
        assert log_writes(broker) - writes < 400
        assert open_messages(broker) == 2_000
        assert {(await one).code for one in waiting} == {DONE, ResponseCode.POLLING_TIMEOUT}
        assert len(broker.parts.state.waiting_pops) == 0


@in_virtual_time
async def test_a_held_pop_of_a_lost_connection_leases_nothing() -> None:
    async with running() as broker:
        broker.make_topic(queues=1)
        client, producer = await broker.connect(), await broker.connect()
        waiting = asyncio.ensure_future(client.ask(RequestCode.POP_MESSAGE, popping(poll_ms=20_000)))
        await asyncio.sleep(0.1)
        broker.parts.state.waiting_pops.wake_topic("T")
        client.peer.connection.abort(ConnectionError("lost"))  # type: ignore[arg-type]
        await producer.sent(b"one")
        await asyncio.gather(waiting, return_exceptions=True)

        assert open_messages(broker) == 0
        assert await bodies(producer) == [b"one"]


@in_virtual_time
async def test_an_extended_lease_is_kept_by_a_turn_that_also_fails_a_request() -> None:
    """A request with a mistake takes nothing of the others back."""
    async with running() as broker:
        client = await with_messages(broker)
        one, two, three, four = await pop(client)

        commands = [
            an_ack(one),
            an_ack(two, topic="Unknown"),
            a_change(three, 9_000),
            an_ack(four, extra_info="forged"),
        ]
        answers = broker.serve_now(client, *commands)

        assert await codes(answers) == [DONE, ResponseCode.TOPIC_NOT_EXIST, DONE, ResponseCode.SYSTEM_ERROR]
        assert open_messages(broker) == 3
        renewed = await change(client, two, 5_000)
        assert (await ack(client, renewed)).code == DONE


@in_virtual_time
async def test_a_failed_turn_gives_an_orderly_queue_back(slow: Slow) -> None:
    async with slow() as broker:
        client = await with_messages(broker)
        first, second = await pop(client, most=2, order=True, queue_id=0)
        before = broker.parts.state.orders.find(("G", "T", 0))
        stall = broker.stall_writes()
        broker.disk.fail("write", errno.EIO, "*commitlog*")
        a_send = request(RequestCode.SEND_MESSAGE_V2, sending(), b"lost")

        answers = broker.serve_now(
            client, a_send, an_ack(first), an_ack(second), a_pop(most=2, order=True, queue_id=0, group="G")
        )
        await settled()
        stall.release()

        assert await codes(answers) == [ERROR] * 4
        assert broker.parts.state.orders.find(("G", "T", 0)) == before
        assert broker.parts.state.positions.get(("G", "T", 0)) == 0
        await asyncio.sleep(1)
        assert await codes(broker.serve_now(client, an_ack(first), an_ack(second))) == [DONE] * 2
        assert await bodies(client, order=True, queue_id=0) == [b"2", b"3"]


@in_virtual_time
async def test_held_pops_are_answered_when_the_broker_stops() -> None:
    async with running() as broker:
        broker.make_topic()
        client = await broker.connect()
        waiting = [
            asyncio.ensure_future(client.ask(RequestCode.POP_MESSAGE, popping(poll_ms=20_000))) for _ in range(20)
        ]
        await asyncio.sleep(0.1)

        await broker.broker.stop()

        assert {(await one).code for one in waiting} == {ResponseCode.POLLING_TIMEOUT}


@in_virtual_time
async def test_one_way_acks_count_and_get_no_answer() -> None:
    async with running() as broker:
        client = await with_messages(broker)
        one, two, three, _ = await pop(client)

        for each in (one, two):
            client.tell(RequestCode.ACK_MESSAGE, AckMessage("G", "T", 0, each.handle.text(), each.handle.offset))
        client.tell(RequestCode.BATCH_ACK_MESSAGE, body=batch_of([three]).encode())
        await settled()

        assert open_messages(broker) == 1
        assert client.peer.unmatched == 0


@in_virtual_time
async def test_a_turn_ends_when_its_pops_have_large_answers() -> None:
    """So that a client that does not read is not sent more."""
    async with running(store={"log_file_bytes": 1 << 20, "max_message_bytes": 1 << 18}) as broker:
        broker.make_topic(queues=1)
        client = await broker.connect()
        for number in range(60):
            await client.sent(b"%d" % number * 50_000)
        writes = log_writes(broker)

        answers = [await one for one in broker.serve_now(client, *[a_pop(most=1) for _ in range(60)])]

        assert {answer.code for answer in answers} == {DONE}
        assert len([one for answer in answers for one in leased(answer)]) == 60
        assert 1 < log_writes(broker) - writes < 6


@pytest.mark.parametrize("seed", range(3))
@in_virtual_time
async def test_forged_handles_among_valid_ones_get_rocketmqs_codes_and_change_nothing(seed: int) -> None:
    """Words of valid handles are replaced, cut off and repeated; every valid ack counts."""
    chance = Random(seed)
    words = (
        "",
        "x",
        "-1",
        "999",
        "9",
        str(2**31),
        str(2**63 - 1),
        str(-(2**63)),
        "9" * 30,
        "é",
        "broker-b",
        "1 2",
    )
    async with running(store={"log_file_bytes": 1 << 20}) as broker:
        client = await with_messages(broker, 96)
        leases = [one for _ in range(3) for one in await pop(client, invisible_ms=600_000)]
        mixed: list[tuple[Leased, Command]] = []
        for one in leases:
            for _ in range(2):
                parts = one.handle.text().split(" ")
                match chance.randrange(3):
                    case 0:
                        parts[chance.choice([0, 1, 5])] = chance.choice(words)
                    case 1:
                        del parts[chance.randrange(6) :]
                    case _:
                        parts[1:1] = parts[: chance.randrange(1, 8)]
                mixed.append((one, an_ack(one, extra_info=" ".join(parts))))
        valid = chance.sample(leases, 50)
        mixed += [(one, an_ack(one)) for one in valid]
        chance.shuffle(mixed)

        answers = broker.serve_now(client, *[command for _, command in mixed])

        found = await codes(answers)
        assert {*found} <= {DONE, ResponseCode.SYSTEM_ERROR, ResponseCode.MESSAGE_ILLEGAL, ResponseCode.NO_MESSAGE}
        for (_, command), code in zip(mixed, found, strict=True):
            assert (
                code == DONE or command.ext is None or command.ext["extraInfo"] not in {o.handle.text() for o in valid}
            )
        assert open_messages(broker) == len(leases) - len(valid)
        nothing_is_half_done(broker)


@pytest.mark.parametrize("most", [0, -1, -3, -(2**31)])
@in_virtual_time
async def test_a_pop_of_no_messages_leases_none(most: int) -> None:
    async with running() as broker:
        client = await with_messages(broker, 10)
        assert len(await pop(client, most=1)) == 1

        assert await pop(client, most=most) == []
        assert open_messages(broker) == 1


@in_virtual_time
async def test_acks_that_wait_because_a_turn_took_long_are_stored_together_too() -> None:
    async with running(store={"log_file_bytes": 1 << 20}) as broker:
        client = await with_messages(broker, 100)
        leases = [one for _ in range(4) for one in await pop(client)]
        broker.clock.skip_delay_s = 0.05

        answers = broker.serve_now(client, *map(an_ack, leases))

        assert len(broker.turns.waiting) > 0
        assert await codes(answers) == [DONE] * 100
        tags = [tag for tag, _ in records(broker)]
        assert tags.count("bAck") == 4
        assert "ack" not in tags
        assert open_messages(broker) == 0
