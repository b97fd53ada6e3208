"""Members: which are connected, notified and removed, as with the real broker in the same conversations."""

from collections import Counter
from collections.abc import Callable, Hashable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.golden import captured, needs_golden

from pocketmq.broker.groups.consumer_group import ClientInfo, Conflict
from pocketmq.broker.groups.members import Changes, Members, Notice
from pocketmq.codes import RequestCode
from pocketmq.errors import ConsumerNotOnline, InvalidParameter, SubscriptionStale, SubscriptionUnknown
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.bodies.clients import (
    ConsumerConnection,
    ConsumerData,
    ConsumerIdList,
    HeartbeatData,
    MessageModel,
    ProducerConnection,
    ProducerData,
    ProducerTable,
)
from pocketmq.protocol.command import Command

NOW_MS = 1_700_000_000_000
ALL = (Subscription("T", sub_version=1), Subscription("%RETRY%g", sub_version=1))


def client(connection: Hashable, client_id: str | None = None) -> ClientInfo:
    return ClientInfo(connection, client_id or f"c{connection}", f"127.0.0.1:{connection}", "JAVA", 479)


def consumer(
    *groups: str,
    subscriptions: tuple[Subscription, ...] = ALL,
    model: MessageModel = MessageModel.CLUSTERING,
    fingerprint: int = 0,
    without_sub: bool = False,
) -> HeartbeatData:
    data = tuple(ConsumerData(group, message_model=model, subscription_data_set=subscriptions) for group in groups)
    return HeartbeatData("", (), data, fingerprint, without_sub)


def producer(*groups: str) -> HeartbeatData:
    return HeartbeatData("", tuple(map(ProducerData, groups)))


@pytest.fixture
def members() -> Members:
    return Members()


def join(members: Members, connection: Hashable, *groups: str, now: float = 0) -> Changes:
    return members.heartbeat(client(connection), consumer(*groups), now, NOW_MS)


# notices


def test_all_members_are_notified_of_a_new_member_including_itself(members: Members) -> None:
    assert join(members, 1, "g").notices == (Notice("g", (1,)),)
    assert join(members, 2, "g").notices == (Notice("g", (1, 2)),)
    assert join(members, 1, "g").notices == ()


def test_the_remaining_members_are_notified_of_a_lost_member(members: Members) -> None:
    for connection in (1, 2, 3):
        join(members, connection, "g")

    assert members.unregister(1, consumer_group="g", producer_group=None).notices == (Notice("g", (2, 3)),)
    assert members.lost(2).notices == (Notice("g", (3,)),)
    assert members.lost(3).notices == ()
    assert members.group("g") is None
    assert len(members) == 0


def test_changed_topics_cause_a_rebalance_and_changed_filters_do_not(members: Members) -> None:
    join(members, 1, "g")
    join(members, 2, "g")
    newer = tuple(Subscription(one.topic, sub_version=2) for one in ALL)

    assert members.heartbeat(client(1), consumer("g", subscriptions=newer), 0, NOW_MS).notices == ()
    assert members.heartbeat(client(1), consumer("g", subscriptions=newer[:1]), 0, NOW_MS).notices == (
        Notice("g", (1, 2)),
    )


def test_one_heartbeat_may_change_several_groups(members: Members) -> None:
    join(members, 1, "g")

    assert join(members, 2, "g", "h").notices == (Notice("g", (1, 2)), Notice("h", (2,)))
    assert members.lost(2).notices == (Notice("g", (1,)),)


def test_members_of_a_broadcasting_group_are_not_notified(members: Members) -> None:
    heartbeat = consumer("g", model=MessageModel.BROADCASTING)

    told = [members.heartbeat(client(connection), heartbeat, 0, NOW_MS).notices for connection in (1, 2)]
    told += [members.lost(1).notices, members.expire(1000).notices]

    assert told == [(), (), (), ()]


def test_members_of_a_group_with_notifications_off_are_not_notified(members: Members) -> None:
    assert members.heartbeat(client(1), consumer("g", "h"), 0, NOW_MS, quiet=["g"]).notices == (Notice("h", (1,)),)
    assert members.heartbeat(client(2), consumer("g"), 0, NOW_MS, quiet=["g"]).notices == ()
    assert members.lost(2).notices == ()
    assert members.heartbeat(client(3), consumer("g"), 0, NOW_MS).notices == (Notice("g", (1, 3)),)


def test_leaving_an_unjoined_group_changes_nothing(members: Members) -> None:
    join(members, 1, "g")

    assert members.unregister(2, consumer_group="g", producer_group="p") == Changes()
    assert members.unregister(1, consumer_group="h", producer_group=None) == Changes()
    assert members.unregister(1, consumer_group=None, producer_group="p") == Changes()
    assert members.lost(2) == Changes()
    assert members.client_ids("g") == ("c1",)


def test_changes_of_membership_are_counted(members: Members) -> None:
    def counted() -> int:
        before, members.changes = members.changes, 0
        return before

    join(members, 1, "g", "h")
    assert counted() == 2
    join(members, 1, "g", "h")
    members.heartbeat(client(2), producer("p"), 0, NOW_MS)
    assert counted() == 0, "it said so before, and producers are in no consumer group"
    members.heartbeat(client(1)._replace(version=480), consumer("g"), 0, NOW_MS)
    assert counted() == 1
    members.unregister(1, consumer_group="h", producer_group=None)
    members.lost(1)
    assert counted() == 2
    join(members, 3, "g", now=0)
    members.expire(1000)
    assert counted() == 2


# time


@pytest.mark.parametrize(("passed", "alive"), [(119.999, True), (120.0, True), (120.001, False)])
def test_a_member_silent_for_two_minutes_is_removed_and_its_connection_closed(
    members: Members, passed: float, alive: bool
) -> None:
    members.heartbeat(client(1), consumer("g"), 0, NOW_MS)
    members.heartbeat(client(2), producer("p"), 0, NOW_MS)
    members.heartbeat(client(3), consumer("g"), 100, NOW_MS)

    changes = members.expire(passed)

    assert changes.silent == (() if alive else (2, 1))
    assert changes.notices == (() if alive else (Notice("g", (3,)),))
    assert members.client_ids("g") == (("c1", "c3") if alive else ("c3",))
    assert (members.producers.find_client("c2") is not None) is alive
    assert (1 in members, 2 in members) == (alive, alive)


def test_a_heartbeat_renews_the_time_of_a_member(members: Members) -> None:
    join(members, 1, "g", now=0)
    join(members, 1, "g", now=100)

    assert members.expire(219) == Changes()
    assert members.expire(221).silent == (1,)


def test_a_connection_that_left_one_of_its_groups_is_not_closed(members: Members) -> None:
    join(members, 1, "g", "h", now=0)
    join(members, 2, "g", now=100)
    join(members, 1, "h", now=100)

    changes = members.expire(121)

    assert changes == Changes(notices=(Notice("g", (2,)),))
    assert members.client_ids("h") == ("c1",)


def test_a_connection_that_only_produces_is_not_closed(members: Members) -> None:
    join(members, 1, "g", now=0)
    members.heartbeat(client(1), producer("p"), 100, NOW_MS)

    assert members.expire(121).silent == ()
    assert 1 in members


# heartbeats without subscriptions


def test_version_1_always_requests_subscriptions_and_version_2_only_unknown_ones(members: Members) -> None:
    def asks(heartbeat: HeartbeatData, connection: int = 1) -> bool:
        return members.heartbeat(client(connection), heartbeat, 0, NOW_MS).resend

    assert asks(consumer("g"))
    assert asks(consumer("g"))
    assert not asks(consumer("g", fingerprint=77))
    assert not asks(consumer("g", subscriptions=(), fingerprint=77, without_sub=True))
    assert asks(consumer("g", subscriptions=(), fingerprint=78, without_sub=True))
    assert asks(consumer("g", "h", subscriptions=(), fingerprint=77, without_sub=True))
    assert asks(consumer("g", subscriptions=(), fingerprint=77, without_sub=True), connection=2)
    assert members.subscription("g", "T", 1) == ALL[0]


def test_a_restarted_broker_requests_subscriptions(members: Members) -> None:
    changes = members.heartbeat(client(1), consumer("g", subscriptions=(), fingerprint=77, without_sub=True), 0, NOW_MS)

    assert changes.resend
    assert changes.notices == (Notice("g", (1,)),)
    with pytest.raises(SubscriptionUnknown):
        members.subscription("g", "T", 0)


def test_version_1_cannot_omit_subscriptions(members: Members) -> None:
    join(members, 1, "g")

    members.heartbeat(client(1), consumer("g", subscriptions=(), without_sub=True), 0, NOW_MS)

    with pytest.raises(SubscriptionUnknown):
        members.subscription("g", "T", 0)


# who is there


def test_a_pull_finds_its_subscription_or_gets_the_reason(members: Members) -> None:
    with pytest.raises(SubscriptionUnknown, match="no member on this broker"):
        members.subscription("g", "T", 0)

    join(members, 1, "g")

    assert members.subscription("g", "T", 1) == ALL[0]
    with pytest.raises(SubscriptionUnknown):
        members.subscription("g", "U", 0)
    with pytest.raises(SubscriptionStale):
        members.subscription("g", "T", 2)


def test_members_are_listed_once_and_found_by_their_id(members: Members) -> None:
    for connection, client_id in ((1, "a"), (2, "b"), (3, "a")):
        members.heartbeat(client(connection, client_id), consumer("g"), 0, NOW_MS)

    assert members.client_ids("g") == ("a", "b")
    assert members.client_ids("nobody") == ()
    assert members.find_consumer("g", "a") == client(3, "a")
    assert members.find_consumer("g", "c") is None
    assert members.find_consumer("nobody", "a") is None


def test_groups_are_found_by_their_subscribed_topics(members: Members) -> None:
    join(members, 1, "g", "h")
    members.heartbeat(client(2), consumer("i", subscriptions=(Subscription("U"),)), 0, NOW_MS)

    assert members.groups_of_topic("T") == ["g", "h"]
    assert members.groups_of_topic("U") == ["i"]
    assert members.groups_of_topic("V") == []


def test_a_group_without_members_cannot_be_shown(members: Members) -> None:
    with pytest.raises(ConsumerNotOnline, match="no member of consumer group g") as refused:
        members.consumer_connections("g")

    assert refused.value.code == 206


# conflicts


def test_conflicting_members_are_logged_once_and_always_listed(members: Members) -> None:
    other = (Subscription("U", sub_version=1),)
    conflict = Conflict("g", {"T": {"*": ("c1",), None: ("c2",)}, "U": {None: ("c1",), "*": ("c2",)}})

    assert join(members, 1, "g", "h").conflicts == ()
    assert members.heartbeat(client(2), consumer("g", subscriptions=other), 0, NOW_MS).conflicts == (conflict,)
    assert join(members, 1, "g", "h").conflicts == ()
    assert members.heartbeat(client(2), consumer("g", subscriptions=other), 0, NOW_MS).conflicts == ()
    assert members.conflicts() == [conflict]

    assert members.lost(1).conflicts == (Conflict("g", {}),)
    assert members.conflicts() == []


@pytest.mark.parametrize("end", ["unregister", "expire"])
def test_a_conflict_ends_when_its_member_leaves_in_any_way(members: Members, end: str) -> None:
    join(members, 1, "g", now=0)
    members.heartbeat(client(2), consumer("g", subscriptions=(Subscription("U", sub_version=1),)), 100, NOW_MS)

    changes = members.expire(121) if end == "expire" else members.unregister(1, consumer_group="g", producer_group=None)

    assert changes.conflicts == (Conflict("g", {}),)


# limits


def test_a_heartbeat_without_client_id_is_refused_unless_it_is_empty(members: Members) -> None:
    nobody = ClientInfo(1, "", "", "JAVA", 0)

    assert members.heartbeat(nobody, HeartbeatData(), 0, NOW_MS) == Changes(resend=True)
    for heartbeat in (consumer("g"), producer("p")):
        with pytest.raises(InvalidParameter, match="no client id"):
            members.heartbeat(nobody, heartbeat, 0, NOW_MS)
    assert 1 not in members


@pytest.mark.parametrize("kind", [consumer, producer])
def test_the_groups_of_a_connection_are_limited(kind: Callable[..., HeartbeatData]) -> None:
    members = Members(max_groups=3)

    members.heartbeat(client(1), kind("a", "b"), 0, NOW_MS)
    members.heartbeat(client(1), kind("b", "c"), 0, NOW_MS)
    with pytest.raises(InvalidParameter, match="at most 3 of each"):
        members.heartbeat(client(1), kind("c", "d"), 0, NOW_MS)

    members.heartbeat(client(2), kind("d"), 0, NOW_MS)
    assert members.client_ids("d") == (("c2",) if kind is consumer else ())
    members.lost(1)
    members.heartbeat(client(1), kind("d"), 0, NOW_MS)


@pytest.mark.parametrize(("count", "taken"), [(2, True), (3, True), (4, False)])
def test_the_topics_of_a_member_are_limited(count: int, taken: bool) -> None:
    members = Members(max_subscriptions=3)
    heartbeat = consumer("g", subscriptions=tuple(Subscription(f"T{n}") for n in range(count)))

    if taken:
        members.heartbeat(client(1), heartbeat, 0, NOW_MS)
    else:
        with pytest.raises(InvalidParameter, match="subscribes to 4 topics"):
            members.heartbeat(client(1), heartbeat, 0, NOW_MS)

    assert (1 in members) is taken


# any order of events


class AnyOrder(RuleBasedStateMachine):
    """Members join, leave, fall silent and are cut off in any order. Group `b` broadcasts."""

    connections = st.integers(0, 3)
    groups = st.sampled_from(["g", "h", "b"])

    def __init__(self) -> None:
        super().__init__()
        self.members = Members()
        self.now = 0.0
        self.consuming: dict[tuple[int, str], tuple[str, float]] = {}
        self.producing: dict[tuple[int, str], float] = {}

    def connections_of(self, group: str) -> list[int]:
        return [connection for connection, name in self.consuming if name == group]

    def check_notices(self, changes: Changes, changed: set[str], *, exactly: bool = True) -> None:
        told = {notice.group: notice.connections for notice in changes.notices}
        due = {group for group in changed if group != "b" and self.connections_of(group)}
        assert due == told.keys() if exactly else due <= told.keys()
        assert len(told) == len(changes.notices)
        for group, connections in told.items():
            assert sorted(map(str, connections)) == sorted(map(str, self.connections_of(group)))

    @rule(
        connection=connections,
        client_id=st.sampled_from(["x", "y"]),
        group=groups,
        topics=st.sets(st.sampled_from(["T", "U"])),
        fingerprint=st.integers(0, 2),
        without_sub=st.booleans(),
    )
    def consume(
        self, connection: int, client_id: str, group: str, topics: set[str], fingerprint: int, without_sub: bool
    ) -> None:
        model = MessageModel.BROADCASTING if group == "b" else MessageModel.CLUSTERING
        subscriptions = tuple(Subscription(topic) for topic in sorted(topics))
        before = self.consuming.get((connection, group), ("", 0))[0]
        self.consuming[connection, group] = client_id, self.now

        changes = self.members.heartbeat(
            client(connection, client_id),
            consumer(group, subscriptions=subscriptions, model=model, fingerprint=fingerprint, without_sub=without_sub),
            self.now,
            NOW_MS,
        )

        self.check_notices(changes, {group} if before != client_id else set(), exactly=False)
        assert not changes.silent

    @rule(connection=connections, client_id=st.sampled_from(["x", "y"]), group=groups)
    def produce(self, connection: int, client_id: str, group: str) -> None:
        self.producing[connection, group] = self.now

        self.members.heartbeat(client(connection, client_id), producer(group), self.now, NOW_MS)

        assert self.members.producers.find_client(client_id) == connection

    @rule(connection=connections, group=groups)
    def leave(self, connection: int, group: str) -> None:
        was_there = self.consuming.pop((connection, group), None)
        self.producing.pop((connection, group), None)

        changes = self.members.unregister(connection, consumer_group=group, producer_group=group)

        self.check_notices(changes, {group} if was_there else set())

    @rule(connection=connections)
    def lose(self, connection: int) -> None:
        left = {group for one, group in self.consuming if one == connection}
        self.consuming = {key: seen for key, seen in self.consuming.items() if key[0] != connection}
        self.producing = {key: seen for key, seen in self.producing.items() if key[0] != connection}

        changes = self.members.lost(connection)

        self.check_notices(changes, left)
        assert connection not in self.members

    @rule(passed=st.sampled_from([1.0, 60.0, 120.0, 121.0]))
    def wait(self, passed: float) -> None:
        self.now += passed
        expired = {key[1] for key, (_, seen) in self.consuming.items() if self.now - seen > 120}
        before = {connection for connection, _ in [*self.consuming, *self.producing]}
        self.consuming = {key: one for key, one in self.consuming.items() if self.now - one[1] <= 120}
        self.producing = {key: seen for key, seen in self.producing.items() if self.now - seen <= 120}

        changes = self.members.expire(self.now)

        self.check_notices(changes, expired)
        assert set(changes.silent) == before - {connection for connection, _ in [*self.consuming, *self.producing]}

    @invariant()
    def everybody_is_listed_and_nobody_else(self) -> None:
        assert len(self.members) == len({group for _, group in self.consuming})
        assert len(self.members.producers) == len({group for _, group in self.producing})
        assert self.members.producers.table().data.keys() == {group for _, group in self.producing}
        for connection in range(4):
            speaks = any(one == connection for one, _ in [*self.consuming, *self.producing])
            assert (connection in self.members) is speaks
        for group in ("g", "h", "b"):
            ids = self.members.client_ids(group)
            assert len(set(ids)) == len(ids)
            assert set(ids) == {client_id for (_, name), (client_id, _) in self.consuming.items() if name == group}
            found = self.members.group(group)
            assert found is None or found.in_conflict is bool(found.conflict().wanted)

    def teardown(self) -> None:
        for connection in range(4):
            self.members.lost(connection)
        assert len(self.members) == len(self.members.producers) == 0
        assert self.members.producers.find_client("x") is self.members.producers.find_client("y") is None


AnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestAnyOrder = AnyOrder.TestCase


# what the real broker did


class Replay:
    """A conversation, replayed frame by frame: which members would be notified, and the list of members."""

    def __init__(self, pattern: str) -> None:
        self.members = Members()
        self.told: Counter[tuple[str, str]] = Counter()
        self.really_told: Counter[tuple[str, str]] = Counter()
        self.lists: list[tuple[set[str], set[str]]] = []
        self._asked: dict[tuple[str, int], set[str]] = {}
        for frame in captured(pattern):
            if frame.link in ("broker", "vip"):
                self._take(frame.conn, frame.command, frame.answers)

    def _take(self, conn: str, command: Command, answers: int | None) -> None:
        ext = command.ext or {}
        if answers == RequestCode.GET_CONSUMER_LIST_BY_GROUP:
            listed = set(ConsumerIdList.decode(command.body).consumer_id_list) if not command.code else set()
            self.lists.append((self._asked.pop((conn, command.opaque)), listed))
        elif answers is not None:
            return
        elif command.code == RequestCode.HEART_BEAT:
            heartbeat = HeartbeatData.decode(command.body)
            who = ClientInfo(conn, heartbeat.client_id, "", command.language.name, command.version)
            self._tell(self.members.heartbeat(who, heartbeat, 0, NOW_MS))
        elif command.code == RequestCode.UNREGISTER_CLIENT:
            self._tell(
                self.members.unregister(
                    conn, consumer_group=ext.get("consumerGroup"), producer_group=ext.get("producerGroup")
                )
            )
        elif command.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP:
            self._asked[conn, command.opaque] = set(self.members.client_ids(ext["consumerGroup"]))
        elif command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            self.really_told[conn, ext["consumerGroup"]] += 1

    def _tell(self, changes: Changes) -> None:
        assert changes.conflicts == ()
        for notice in changes.notices:
            self.told.update((str(connection), notice.group) for connection in notice.connections)


CONVERSATIONS = [
    "5.3.3/json/push",
    "5.3.3/binary/push",
    "5.3.3/mixed/push",
    "5.3.3/json/members",
    "5.3.3/binary/members",
    "5.3.3/json/orderly",
    "5.3.3/binary/orderly",
    "4.9.7/json/push",
    "4.9.7/binary/push",
    "4.9.7/json/members",
    "4.9.7/json/orderly",
]


@needs_golden
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_notifications_and_lists_match_the_captured_broker(name: str) -> None:
    replay = Replay(f"wire/{name}.jsonl")

    assert replay.told == replay.really_told
    assert replay.told
    assert replay.lists
    assert all(ours == theirs for ours, theirs in replay.lists)
    assert len(replay.members) == 0


@needs_golden
@pytest.mark.parametrize(("version", "notices"), [("5.3.3", 0), ("4.9.7", 1)])
def test_a_broadcasting_group_is_not_notified_as_in_release_5(version: str, notices: int) -> None:
    replay = Replay(f"wire/{version}/json/broadcast.jsonl")

    assert replay.told.total() == 0
    assert replay.really_told.total() == notices
    assert len(replay.members) == len(replay.members.producers) == 0


@needs_golden
def test_a_client_under_a_new_name_leaves_with_its_connection() -> None:
    replay = Replay("wire/5.3.3/json/raw.jsonl")

    assert replay.lists == [({"127.0.0.1@raw"}, {"127.0.0.1@raw"}), (set(), set())]
    assert replay.told == replay.really_told
    assert replay.members.client_ids("CG_raw") == ()


@needs_golden
def test_administrators_get_the_answers_of_the_captured_broker(members: Members) -> None:
    consumers, producers, table = (
        kind.decode(frame.command.body)
        for pattern, code, kind in (
            ("017-consumerConnection", RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerConnection),
            ("014-producerConnection", RequestCode.GET_PRODUCER_CONNECTION_LIST, ProducerConnection),
            ("016-producer", RequestCode.GET_ALL_PRODUCER_INFO, ProducerTable),
        )
        for frame in captured(f"mqadmin/5.3.3/wire/{pattern}.jsonl")
        if frame.answers == code
    )
    assert isinstance(consumers, ConsumerConnection)
    assert isinstance(table, ProducerTable)
    (connection,) = consumers.connection_set
    data = ConsumerData(
        "CG_stay",
        consumers.consume_type or ConsumerData("").consume_type,
        consumers.message_model or ConsumerData("").message_model,
        consumers.consume_from_where or ConsumerData("").consume_from_where,
        tuple(consumers.subscription_table.values()),
    )

    who = ClientInfo(
        0, connection.client_id, connection.client_addr or "", connection.language or "", connection.version
    )
    members.heartbeat(who, HeartbeatData(consumer_data_set=(data,)), 0, NOW_MS)
    for group, infos in table.data.items():
        for info in infos:
            address = (info.remote_ip or "").removeprefix("/")
            who = ClientInfo(address, info.client_id, address, info.language or "", info.version)
            members.heartbeat(who, producer(group), 0, info.last_update_timestamp)

    assert members.consumer_connections("CG_stay") == consumers
    assert members.producers.connections("PG_stay") == producers
    assert members.producers.table() == table
