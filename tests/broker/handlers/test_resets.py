"""Moving groups: resets here and by the members, corrections, and clones; with the answers of the real broker."""

import asyncio

import pytest
from tests.broker.handlers.client_talk import Client, Room, consuming, served, settled
from tests.golden import captured, needs_golden

from pocketmq.broker.groups.offsets import NOTHING_TO_CORRECT
from pocketmq.codes import Language, RequestCode, ResponseCode
from pocketmq.errors import StoreFull
from pocketmq.model.queue import MessageQueue
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.api.messages import CloneGroupOffset, QueryCorrectionOffset, ResetOffset
from pocketmq.protocol.bodies.clients import SubscriptionGroupConfig
from pocketmq.protocol.bodies.topics import CorrectionOffsets, CppResetOffsets, ResetOffsets
from pocketmq.protocol.command import Command
from pocketmq.protocol.java_json import read_json
from pocketmq.testing import run

RESET = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
PUSHED = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
CLONE = RequestCode.CLONE_GROUP_OFFSET
END = -1


def queue(number: int, topic: str = "T") -> MessageQueue:
    return MessageQueue(topic, "broker-a", number)


def stock(room: Room, topic: str = "T", group: str = "g", counts: tuple[int, ...] = (4, 3)) -> None:
    """A topic with this number of messages in its queues, a second apart, and a group that has read two of each."""
    room.make_topic(topic, len(counts))
    room.groups.put([SubscriptionGroupConfig(group)], 0)
    for number in range(max(counts)):
        for queue_id, count in enumerate(counts):
            if number < count:
                room.disk.send(b"%d" % number, topic=topic, queue_id=queue_id)
        room.clock.step_ms(1000)
    for queue_id in range(len(counts)):
        room.offsets.commit(group, topic, queue_id, 2)


def targets(answer: Command) -> dict[int, int]:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    table = ResetOffsets.decode(answer.body).offset_table
    assert {(one.topic, one.broker_name) for one in table} == {("T", "broker-a")}
    return {one.queue_id: offset for one, offset in table.items()}


async def member(room: Room, client_id: str, **how: object) -> Client:
    client = await room.connect(client_id, consuming("g"), **how)  # type: ignore[arg-type]
    await settled()
    client.take_covered()
    return client


# here


def test_a_reset_sets_every_queue_wakes_its_pulls_and_is_saved() -> None:
    async def main() -> None:
        async with served() as room:
            stock(room)
            client = await room.connect("admin")

            answer = await client.done(RESET, ResetOffset("g", "T", END, is_force=True, queue_id=-1, offset=-1))

            assert targets(answer) == {0: 4, 1: 3}
            assert [room.offsets.stored("g", "T", number) for number in range(2)] == [4, 3]
            assert [room.offsets.pop_reset("g", "T", number) for number in range(2)] == [4, 3]
            assert room.arrivals.woken == [("T", 0), ("T", 1)]
            assert room.snapshots.saved == 1

    run(main())


def test_a_reset_by_time_ignores_the_offset() -> None:
    async def main() -> None:
        async with served() as room:
            start_ms = room.clock.now_ms()
            stock(room)
            client = await room.connect("admin")

            answers = [
                await client.done(RESET, ResetOffset("g", "T", start_ms + after, is_force=True, offset=1))
                for after in (-5000, 1000, 1001, 60_000)
            ]

            assert [targets(answer) for answer in answers] == [{0: 0, 1: 0}, {0: 1, 1: 1}, {0: 2, 1: 2}, {0: 4, 1: 3}]

    run(main())


@pytest.mark.parametrize(("offset", "target"), [(0, 0), (3, 3), (-1, 1), (None, 1)])
def test_one_queue_may_be_reset_to_an_offset(offset: int | None, target: int) -> None:
    async def main() -> None:
        async with served() as room:
            time_ms = room.clock.now_ms() + 1000
            stock(room)
            client = await room.connect("admin")

            answer = await client.done(RESET, ResetOffset("g", "T", time_ms, False, queue_id=1, offset=offset))

            assert targets(answer) == {1: target}
            assert room.offsets.stored("g", "T", 0) == 2
            assert room.arrivals.woken == [("T", 1)]

    run(main())


@pytest.mark.parametrize(
    ("header", "code", "remark"),
    [
        (ResetOffset("g", "None", END, True), ResponseCode.TOPIC_NOT_EXIST, "Topic None does not exist"),
        (ResetOffset("none", "T", END, True), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group none does not exist"),
        (
            ResetOffset("g", "T", END, True, 2),
            ResponseCode.INVALID_PARAMETER,
            "topic T has no queue 2 to read from; it has 2",
        ),
        (
            ResetOffset("g", "T", END, True, 1, 4),
            ResponseCode.SYSTEM_ERROR,
            "offset 4 is not in the queue, which has 0 to 3",
        ),
    ],
)
def test_an_invalid_reset_changes_nothing(header: ResetOffset, code: ResponseCode, remark: str) -> None:
    async def main() -> None:
        async with served() as room:
            stock(room)
            client = await room.connect("admin")

            answer = await client.ask(RESET, header)

            assert (answer.code, answer.remark) == (code, remark)
            assert [room.offsets.stored("g", "T", number) for number in range(2)] == [2, 2]
            assert (room.arrivals.woken, room.snapshots.saved) == ([], 0)

    run(main())


def test_an_unsaved_reset_is_not_answered_with_success(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail() -> None:
        raise StoreFull("no space")

    async def main() -> None:
        async with served() as room:
            stock(room)
            monkeypatch.setattr(room.snapshots, "save_offsets", fail)
            client = await room.connect("admin")

            answer = await client.ask(RESET, ResetOffset("g", "T", END, True))

            assert (answer.code, answer.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, "no space")

    run(main())


# by the members


def test_with_server_side_resets_off_members_reset_themselves() -> None:
    async def main() -> None:
        async with served(server_side_reset=False) as room:
            stock(room)
            clients = [await member(room, name) for name in ("c1", "c2")]
            for client in clients:
                client.take_covered()
            administrator = await room.connect("admin")

            answer = await administrator.done(RESET, ResetOffset("g", "T", END, is_force=True))
            await settled()

            assert targets(answer) == {0: 4, 1: 3}
            for client in clients:
                (told,) = client.told
                assert (told.code, told.is_oneway) == (PUSHED, True)
                assert ResetOffset.decode(told.ext) == ResetOffset("g", "T", END, is_force=False)
                assert ResetOffsets.decode(told.body).offset_table == {queue(0): 4, queue(1): 3}
            assert room.offsets.stored("g", "T", 0) == 2
            assert room.offsets.pop_reset("g", "T", 0) is None

    run(main())


def test_without_force_members_only_move_backwards() -> None:
    async def main() -> None:
        async with served(server_side_reset=False) as room:
            start_ms = room.clock.now_ms()
            stock(room)
            await member(room, "c1")
            administrator = await room.connect("admin")

            ahead = await administrator.done(RESET, ResetOffset("g", "T", END, is_force=False))
            back = await administrator.done(RESET, ResetOffset("g", "T", start_ms, is_force=False))

            assert (targets(ahead), targets(back)) == ({0: 2, 1: 2}, {0: 0, 1: 0})

    run(main())


def test_members_written_in_cpp_get_a_list() -> None:
    async def main() -> None:
        async with served(server_side_reset=False) as room:
            stock(room)
            client = await member(room, "c1", language=Language.CPP)
            administrator = await room.connect("admin")

            await administrator.done(RESET, ResetOffset("g", "T", END, is_force=True))
            await settled()

            (told,) = client.told
            assert isinstance(read_json(told.body)["offsetTable"], list)
            assert CppResetOffsets.decode(told.body).offsets().offset_table == {queue(0): 4, queue(1): 3}

    run(main())


def test_a_group_without_members_cannot_reset_itself() -> None:
    async def main() -> None:
        async with served(server_side_reset=False) as room:
            stock(room)
            administrator = await room.connect("admin")

            answer = await administrator.ask(RESET, ResetOffset("g", "T", 5, is_force=True))

            assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
            assert answer.remark == "Consumer not online, so can not reset offset, Group: g Topic: T Timestamp: 5"

    run(main())


def test_if_one_member_has_an_old_version_no_member_gets_the_reset() -> None:
    async def main() -> None:
        async with served(server_side_reset=False) as room:
            stock(room)
            young = await member(room, "young")
            old = await member(room, "old", version=27)
            young.take_covered()
            administrator = await room.connect("admin")

            answer = await administrator.ask(RESET, ResetOffset("g", "T", END, is_force=True))
            await settled()

            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "The Consumer <old> Version <27> too low" in (answer.remark or "")
            assert young.told + old.told == []

    run(main())


def test_a_member_that_cannot_be_reached_is_named() -> None:
    async def main() -> None:
        async with served(server_side_reset=False) as room:
            stock(room)
            full = await member(room, "full")
            for peer in room.server.peers:
                peer.connection.pause_writing()
            free = await member(room, "free")
            full.take_covered()
            administrator = await room.connect("admin")

            answer = await administrator.ask(RESET, ResetOffset("g", "T", END, is_force=True))
            await settled()

            assert answer.code == ResponseCode.SUCCESS
            assert answer.remark == "not pushed to clients whose connection is full or closing: full"
            assert [one.code for one in free.told] == [PUSHED]
            assert full.told == []

    run(main())


# comparing and copying


def test_corrections_are_the_smallest_offsets_of_the_matching_groups() -> None:
    async def main() -> None:
        async with served() as room:
            stock(room)
            for group, offsets in (("a", (1, 3)), ("b", (0, 1))):
                for queue_id, offset in enumerate(offsets):
                    room.offsets.commit(group, "T", queue_id, offset)
            client = await room.connect("admin")

            async def ask(compared: str, left_out: str | None) -> dict[int, int]:
                header = QueryCorrectionOffset("T", compared, left_out)
                answer = await client.done(RequestCode.QUERY_CORRECTION_OFFSET, header)
                return CorrectionOffsets.decode(answer.body).correction_offsets

            assert await ask("g", None) == {0: 0, 1: 1}
            assert await ask("g", "b") == {0: 1, 1: 2}
            assert await ask("b", "b,a") == {0: NOTHING_TO_CORRECT, 1: NOTHING_TO_CORRECT}

    run(main())


@pytest.mark.parametrize("topic", [None, "T"])
def test_a_group_gets_the_offsets_of_another(topic: str | None) -> None:
    async def main() -> None:
        async with served() as room:
            stock(room)
            client = await room.connect("admin")

            await client.done(CLONE, CloneGroupOffset("g", "copy", topic))

            assert [room.offsets.stored("copy", "T", number) for number in range(2)] == [2, 2]
            assert "copy" in room.groups
            assert room.snapshots.saved == 1

    run(main())


def test_deleted_or_unsubscribed_topics_are_not_cloned_unless_requested() -> None:
    async def main() -> None:
        async with served() as room:
            stock(room)
            stock(room, "Old")
            room.offsets.commit("g", "Gone", 0, 1)
            await room.connect("c1", consuming("g", subscriptions=(Subscription("T"),)))
            client = await room.connect("admin")

            await client.done(CLONE, CloneGroupOffset("g", "copy"))
            online = room.offsets.topics_of("copy")
            await client.done(CLONE, CloneGroupOffset("g", "copy", offline=True))

            assert (online, room.offsets.topics_of("copy")) == (["T"], ["T", "Old"])

    run(main())


def test_cloning_a_missing_group_fails_and_an_unknown_target_may_be_refused() -> None:
    async def main() -> None:
        async with served() as room:
            client = await room.connect("admin")
            unknown = await client.ask(CLONE, CloneGroupOffset("none", "copy", "T"))
            assert unknown.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            assert "group none does not exist on this broker" in (unknown.remark or "")
            assert (room.offsets.topics_of("copy"), "copy" in room.groups) == ([], False)
        async with served(auto_create_group=False) as room:
            client = await room.connect("admin")
            stock(room)

            answer = await client.ask(CLONE, CloneGroupOffset("g", "copy"))

            assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            assert room.offsets.topics_of("copy") == []

    run(main())


# the real broker


@needs_golden
@pytest.mark.parametrize("release", ["5.3.3", "4.9.7"])
def test_resets_are_answered_and_pushed_as_by_the_captured_broker(release: str) -> None:
    names = "mqadmin/%s/wire/08[3-7]-*Offset*.jsonl"
    frames = [one for one in captured(names % release) if (one.answers or one.command.code) in (RESET, PUSHED)]
    requests = [one.command for one in frames if one.forward]
    answers = [one.command for one in frames if one.answers]
    pushes = [(one.command.ext, read_json(one.command.body)) for one in frames if not one.forward and not one.answers]

    async def main() -> None:
        async with served(server_side_reset=release == "5.3.3") as room:
            stock(room, "StayTopic", "CG_stay", (4, 4))
            client = await room.connect("c1", consuming("CG_stay"))
            await settled()
            client.take_covered()
            administrator = await room.connect("admin")

            for request, theirs in zip(requests, answers, strict=True):
                ours = await administrator.peer.call(request, 600)

                if (request.ext or {})["group"] == "CG_offline":
                    assert (ours.code, ours.remark) == (26, "Group CG_offline does not exist")
                else:
                    assert (ours.code, read_json(ours.body)) == (theirs.code, read_json(theirs.body))
            await asyncio.sleep(1)

            assert [(one.ext, read_json(one.body)) for one in client.told] == pushes

    assert len(requests) >= 3
    run(main())
