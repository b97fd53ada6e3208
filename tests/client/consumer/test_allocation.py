"""Allocation: the same queues as in Java; each queue exactly once."""

import json
from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.java_shares import JAVA_SHARES
from tests.golden import GOLDEN, captured, needs_golden

from pocketmq.client.consumer.allocation import (
    AVERAGE,
    AllocationStrategy,
    Average,
    Circle,
    Configured,
    ConsistentHash,
    MachineRoom,
    MachineRoomNearby,
    allocate,
    sort_queues,
    strategy_named,
)
from pocketmq.codes import RequestCode
from pocketmq.errors import InvalidSetting, UsageError
from pocketmq.model.java_hash import java_hash
from pocketmq.model.queue import MessageQueue, java_sorted

NOBODY = "-"


def queues_of(layout: str) -> list[MessageQueue]:
    """`broker-a:2,broker-b:1` is three queues."""
    brokers = (part.rsplit(":", 1) for part in layout.split(","))
    return [MessageQueue("Orders", name, number) for name, count in brokers for number in range(int(count))]


def room_of_queue(queue: MessageQueue) -> str:
    return queue.broker_name.split("@")[0]


def room_of_member(member: str) -> str:
    return member.split("@")[0]


def named(name: str) -> AllocationStrategy:
    return strategy_named(
        name,
        queues=(),
        machine_rooms={"hz", "sh"},
        machine_room_of_queue=room_of_queue,
        machine_room_of_member=room_of_member,
    )


def allocator(strategy: AllocationStrategy, queues: list[MessageQueue], members: list[str]) -> str:
    """One letter for each queue, in order: its reader, `!` if there are several."""
    letters = dict.fromkeys(sort_queues(queues), NOBODY)
    for letter, member in zip("abcdefghijklmnopqrstuvwxyz", java_sorted(members), strict=False):
        for queue in allocate(strategy, queues, members, member):
            letters[queue] = letter if letters[queue] == NOBODY else "!"
    return "".join(letters.values())


@pytest.mark.parametrize(("name", "layout", "members", "expected"), JAVA_SHARES)
def test_every_strategy_has_the_same_result_as_in_java(name: str, layout: str, members: str, expected: str) -> None:
    queues, everybody = queues_of(layout), members.split(" ")
    Random(7).shuffle(queues)
    Random(8).shuffle(everybody)

    assert allocator(named(name), queues, everybody) == expected


def test_the_hash_ring_matches_a_published_vector() -> None:
    queues = [MessageQueue("T", "b-a", number) for number in range(6)]

    assert allocator(ConsistentHash(), queues, ["c1", "c2", "c3"]) == "acabbc"


def java_set_order(queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """The order in which Java iterates over a small HashSet of queues; mqadmin shows allocations without sorting."""

    def bucket(queue: MessageQueue) -> int:
        total = 1
        for part in (java_hash(queue.broker_name), queue.queue_id, java_hash(queue.topic)):
            total = (31 * total + part) & 0xFFFFFFFF
        return (total ^ total >> 16) & 15

    return sorted(queues, key=bucket)


@needs_golden
def test_average_has_the_same_result_as_mqadmin() -> None:
    screen = (GOLDEN / "mqadmin" / "5.3.3" / "allocateMQ.txt").read_text()
    shown = json.loads(next(line for line in screen.splitlines() if line.startswith("{")))["result"]
    members = ["10.0.0.1", "10.0.0.2"]

    queues = java_set_order([MessageQueue("StayTopic", "broker-a", number) for number in range(2)])
    ours = {member: [queue.queue_id for queue in AVERAGE(queues, members, member)] for member in members}

    assert ours == {member: [queue["queueId"] for queue in found] for member, found in shown.items()}


@needs_golden
@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_real_members_pull_only_the_queues_that_average_allocates(version: str) -> None:
    queues = {"MembersTopic": 2, "%RETRY%CG_members": 1}
    client_ids: dict[str, str] = {}
    members: dict[str, list[str]] = {}
    pulled = []

    for frame in captured(f"wire/{version}/json/members.jsonl"):
        command, ext = frame.command, frame.command.ext or {}
        if frame.answers == RequestCode.GET_CONSUMER_LIST_BY_GROUP:
            members[frame.conn] = json.loads(command.body)["consumerIdList"]
        elif frame.link == "broker" and frame.forward and command.code == RequestCode.HEART_BEAT:
            client_ids[frame.conn] = json.loads(command.body)["clientID"]
        elif frame.link == "broker" and frame.forward and command.code == RequestCode.PULL_MESSAGE:
            queue = MessageQueue(ext["topic"], "broker-a", int(ext["queueId"]))
            all_queues = [MessageQueue(queue.topic, "broker-a", number) for number in range(queues[queue.topic])]
            me = client_ids[frame.conn]
            assert queue in allocate(AVERAGE, all_queues, members[frame.conn], me), frame.name
            pulled.append((len(members[frame.conn]), me, str(queue)))

    assert (1, "127.0.0.1@first", "MembersTopic@broker-a:1") in pulled
    assert (2, "127.0.0.1@first", "%RETRY%CG_members@broker-a:0") in pulled
    assert (2, "127.0.0.1@second", "MembersTopic@broker-a:1") in pulled


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
LAYOUTS = st.dictionaries(NAMES, st.integers(1, 9), min_size=1, max_size=4)
MEMBERS = st.sets(NAMES, min_size=1, max_size=9)


@given(LAYOUTS, MEMBERS, st.sampled_from([Average(), Circle(), ConsistentHash()]))
def test_every_queue_has_exactly_one_reader(
    layout: dict[str, int], members: set[str], strategy: AllocationStrategy
) -> None:
    queues = [MessageQueue("T", broker, number) for broker, count in layout.items() for number in range(count)]

    readers = Counter(queue for member in members for queue in allocate(strategy, queues, members, member))

    assert readers == Counter(queues)


@given(LAYOUTS, MEMBERS, st.sampled_from([Average(), Circle()]))
def test_average_strategies_differ_by_one_queue_at_most(
    layout: dict[str, int], members: set[str], strategy: AllocationStrategy
) -> None:
    queues = [MessageQueue("T", broker, number) for broker, count in layout.items() for number in range(count)]

    sizes = [len(allocate(strategy, queues, members, member)) for member in java_sorted(list(members))]

    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


@given(LAYOUTS, st.sets(NAMES, min_size=2, max_size=6))
def test_with_consistent_hashing_only_the_queues_of_a_leaving_member_move(
    layout: dict[str, int], members: set[str]
) -> None:
    queues = [MessageQueue("T", broker, number) for broker, count in layout.items() for number in range(count)]
    leaver, *others = sorted(members)
    ring = ConsistentHash()

    before = {member: allocate(ring, queues, members, member) for member in members}
    after = {member: allocate(ring, queues, others, member) for member in others}

    assert all(set(before[member]) <= set(after[member]) for member in others)
    assert sum(map(len, after.values())) == len(queues)
    assert len(before[leaver]) == len(queues) - sum(len(before[member]) for member in others)


@given(st.lists(st.sampled_from(["hz", "sh", "bj"]), min_size=1, max_size=6), st.integers(1, 5))
def test_nearby_allocates_every_queue(machine_rooms: list[str], count: int) -> None:
    queues = [
        MessageQueue("T", f"{machine_room}@b", number) for machine_room in ("hz", "sh", "gz") for number in range(count)
    ]
    members = [f"{machine_room}@{number}" for number, machine_room in enumerate(machine_rooms)]
    strategy = MachineRoomNearby(AVERAGE, room_of_queue, room_of_member)

    readers = Counter(queue for member in members for queue in allocate(strategy, queues, members, member))

    assert readers == Counter(queues)


def test_a_member_unknown_to_the_group_reads_nothing() -> None:
    assert allocate(AVERAGE, queues_of("a:4"), ["c1", "c2"], "c3") == []
    assert allocate(AVERAGE, queues_of("a:4"), [], "c3") == []
    assert allocate(AVERAGE, [], ["c3"], "c3") == []


def test_members_and_queues_named_twice_count_once() -> None:
    queues = queues_of("a:4")

    assert allocate(AVERAGE, queues * 2, ["c1", "c2", "c1"], "c1") == queues[:2]


def test_configured_queues_are_read_where_they_exist() -> None:
    wanted = [MessageQueue("Orders", "a", 1), MessageQueue("Orders", "gone", 0), MessageQueue("Other", "a", 0)]

    assert allocate(Configured(wanted), queues_of("a:3"), ["c1", "c2"], "c2") == [MessageQueue("Orders", "a", 1)]


@pytest.mark.parametrize("name", ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "CONFIG", "MACHINE_ROOM"])
def test_strategies_have_the_names_of_rocketmq(name: str) -> None:
    assert named(name).name == name
    assert named("MACHINE_ROOM_NEARBY-" + name if name not in ("CONFIG", "MACHINE_ROOM") else name).name.endswith(name)


@pytest.mark.parametrize("name", ["", "avg", "CONFIG", "MACHINE_ROOM", "MACHINE_ROOM_NEARBY-AVG"])
def test_an_unknown_or_incomplete_strategy_is_refused_with_the_known_names(name: str) -> None:
    with pytest.raises(InvalidSetting, match="AVG_BY_CIRCLE, CONSISTENT_HASH"):
        strategy_named(name)


def test_nearby_refuses_an_unknown_inner_strategy() -> None:
    with pytest.raises(InvalidSetting):
        named("MACHINE_ROOM_NEARBY-NONE")


def test_nearby_names_a_member_without_a_machine_room() -> None:
    strategy = MachineRoomNearby(AVERAGE, room_of_queue, lambda member: "")

    with pytest.raises(UsageError, match="no machine room for c1"):
        allocate(strategy, queues_of("hz@a:1"), ["c1"], "c1")


@pytest.mark.parametrize("machine_rooms", [(), "hz"])
def test_machine_room_requires_machine_rooms(machine_rooms: Sequence[str]) -> None:
    with pytest.raises(InvalidSetting, match="MACHINE_ROOM"):
        MachineRoom(machine_rooms)


def test_a_hash_ring_may_have_other_positions_and_hashes() -> None:
    places = {"c1-0": 10, "c2-0": 20, "c3-0": 30}
    places |= {queue.java_text(): 10 * queue.queue_id + 5 for queue in queues_of("a:4")}
    ring = ConsistentHash(1, places.__getitem__)

    assert allocator(ring, queues_of("a:4"), ["c1", "c2", "c3"]) == "abca"


def test_a_hash_ring_needs_nodes() -> None:
    with pytest.raises(InvalidSetting, match="at least 1"):
        ConsistentHash(0)


class FirstOnly:
    """A strategy of a user's: the first member reads everything."""

    name = "FIRST_ONLY"

    def __call__(self, queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> Sequence[MessageQueue]:
        return queues if me == members[0] else ()


class Broken:
    """Returns the value of its constructor."""

    name = "BROKEN"

    def __init__(self, given: Sequence[MessageQueue]) -> None:
        self._given = given

    def __call__(self, queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> Sequence[MessageQueue]:
        return self._given


def test_a_strategy_of_the_user_is_applied() -> None:
    assert allocator(FirstOnly(), queues_of("a:3"), ["c2", "c1"]) == "aaa"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([MessageQueue("Orders", "b", 9)], "do not exist: Orders@b:9"),
        ([MessageQueue("Orders", "a", 0), MessageQueue("Orders", "a", 0)], "a queue twice"),
    ],
)
def test_a_strategy_with_an_invalid_result_is_named(given: list[MessageQueue], said: str) -> None:
    with pytest.raises(UsageError, match=f"BROKEN returned .*{said}"):
        allocate(Broken(given), queues_of("a:1"), ["c1"], "c1")
