"""Cached pulls compared with pulls that are always checked: with any changes in between, answers and counts are
equal.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.broker.running import RunningBroker, running, settled
from tests.compiled.test_same_turns import EXAMPLES, Wire, usual_send
from tests.twins import BOTH, compiled_or_skip, using

from pocketmq.codes import PullFlag
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.bodies.clients import ConsumerData, HeartbeatData, MessageModel, SubscriptionGroupConfig
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.protocol.frames import join_frame
from pocketmq.testing import run

GROUPS, TOPICS = ("G", "H"), ("T", "U")

Change = Callable[[RunningBroker, Wire], None]


# what clients ask for


NEXT = st.tuples(
    st.sampled_from(["0", "0", "1", "3", "5", "0007", "12", "08", "-1", "99", "x", "\\u0034"]),
    st.one_of(st.integers(0, 9), st.integers(10, 99), st.just(-7)).map(str),
)
"""Offset and opaque."""


@st.composite
def pulls(draw: st.DrawFn) -> bytes:
    """Some pulls of one reader. Most are like others of the same stream but for offset and opaque."""
    flags = draw(st.sampled_from([0, PullFlag.SUBSCRIPTION, PullFlag.SUBSCRIPTION, PullFlag.SUBSCRIPTION]))
    flags |= draw(st.sampled_from([0, 0, PullFlag.COMMIT_OFFSET]))
    flags |= draw(st.sampled_from([0, 0, PullFlag.ONLY_BODIES]))
    ext: dict[str, object] = {
        "consumerGroup": draw(st.sampled_from(GROUPS)),
        "topic": draw(st.sampled_from(["T", "T", "T", "U"])),
        "queueId": draw(st.sampled_from(["0", "0", "0", "1", "00"])),
        "queueOffset": "0",
        "maxMsgNums": draw(st.sampled_from(["32", "32", "4", "1", "0"])),
        "sysFlag": str(int(flags)),
        "commitOffset": draw(st.sampled_from(["0", "2", "5", "-1"])),
        "suspendTimeoutMillis": "0",
        "subVersion": draw(st.sampled_from(["0", "0", "2"])),
        "subscription": draw(st.sampled_from(["*", "*", "A", "A || B"])),
        "expressionType": "TAG",
        "bname": "broker-a",
    }
    if draw(st.integers(0, 9)) == 0:
        name = draw(st.sampled_from([*ext, "maxMsgBytes", "requestSource", "other"]))
        value = draw(st.sampled_from([None, "", "x", "1", "é", 5, "9" * 20]))
        ext = {**ext, name: value} if value is not None else {key: text for key, text in ext.items() if key != name}
    code, flag = draw(st.sampled_from([11, 11, 11, 361])), draw(st.sampled_from([0] * 9 + [2]))
    head = {"code": code, "extFields": ext, "flag": flag, "language": "JAVA", "opaque": 0, "version": 479}
    text = json.dumps(head, separators=(",", ":"), ensure_ascii=False)
    return b"".join(
        _again(text, str(ext.get("queueOffset")), next_one) for next_one in draw(st.lists(NEXT, min_size=1, max_size=3))
    )


def _again(text: str, offset: str, numbers: tuple[str, str]) -> bytes:
    """The same pull with any other offset and opaque."""
    text = text.replace(f'"queueOffset":"{offset}"', f'"queueOffset":"{numbers[0]}"')
    return join_frame(0, text.replace('"opaque":0', f'"opaque":{numbers[1]}').encode())


@st.composite
def sends(draw: st.DrawFn) -> bytes:
    """Some messages, tagged A like all regular ones."""
    numbers = range(draw(st.integers(1, 6)))
    topic, queue_id = draw(st.sampled_from(TOPICS)), draw(st.integers(0, 1))
    return b"".join(usual_send(number, queue_id, bytes(draw(st.integers(1, 900))), topic) for number in numbers)


def asked(data: bytes) -> Change:
    return lambda _, wire: wire.transport.write(data)


# what else may happen


def topic_is_changed(topic: str, queues: int, perm: int) -> Change:
    return lambda broker, _: broker.make_topic(topic, queues, perm)


def topic_is_deleted(topic: str, is_made_again: bool) -> Change:
    def delete(broker: RunningBroker, _: Wire) -> None:
        parts = broker.parts
        parts.state.topics.delete(topic, 0)
        parts.state.offsets.delete_topic(topic)
        parts.state.store.delete_topic(topic)
        parts.state.stats.forget_topic(topic)
        if is_made_again:
            parts.state.topics.put([TopicConfig(topic, 2, 2, 6)], 0)

    return delete


def group_is_changed(group: str, enabled: bool, broadcast: bool, broker_id: int) -> Change:
    config = SubscriptionGroupConfig(
        group, consume_enable=enabled, consume_broadcast_enable=broadcast, which_broker_when_consume_slowly=broker_id
    )
    return lambda broker, _: broker.parts.state.groups.put([config], 0)


def group_is_deleted(group: str) -> Change:
    def delete(broker: RunningBroker, _: Wire) -> None:
        broker.parts.state.groups.delete(group, 0)
        broker.parts.state.stats.forget_group(group)
        broker.parts.state.offsets.delete_group(group)

    return delete


def topic_is_forbidden(group: str, topic: str, readable: bool) -> Change:
    return lambda broker, _: broker.parts.state.groups.set_readable(group, topic, readable, 0)


def settings_are_changed(permission: int, lite_pull: bool, slave_read: bool) -> Change:
    return lambda broker, _: broker.change(permission=permission, lite_pull=lite_pull, slave_read=slave_read)


def group_is_reset(group: str, topic: str, offset: int) -> Change:
    return lambda broker, _: broker.parts.state.offsets.reset(group, topic, {0: offset})


def member_beats(group: str, topic: str, tag: str, version: int, model: MessageModel) -> Change:
    wanted = Subscription.parse(topic, tag, "TAG", version)
    data = ConsumerData(group, message_model=model, subscription_data_set=(wanted,))
    body = HeartbeatData("client", (), (data,)).encode()
    head = b'{"code":34,"flag":0,"language":"JAVA","opaque":1,"version":479}'
    return lambda _, wire: wire.transport.write(join_frame(0, head, body))


def member_leaves(broker: RunningBroker, _: Wire) -> None:
    for connection in list(broker.parts.state.members._consuming):
        broker.parts.state.members.lost(connection)


def log_loses_a_file(broker: RunningBroker, _: Wire) -> None:
    if broker.store._parts.log.droppable:
        broker.store._parts.log.drop_first()


group_names, topic_names, answers = st.sampled_from(GROUPS), st.sampled_from(TOPICS), st.booleans()
changes: st.SearchStrategy[Change] = st.one_of(
    st.builds(topic_is_changed, topic_names, st.integers(1, 2), st.sampled_from([6, 6, 4, 2])),
    st.builds(topic_is_deleted, topic_names, answers),
    st.builds(group_is_changed, group_names, answers, answers, st.integers(0, 1)),
    st.builds(group_is_deleted, group_names),
    st.builds(topic_is_forbidden, group_names, topic_names, answers),
    st.builds(settings_are_changed, st.sampled_from([6, 6, 2]), answers, answers),
    st.builds(group_is_reset, group_names, topic_names, st.sampled_from([0, 2, 50])),
    st.builds(
        member_beats,
        group_names,
        topic_names,
        st.sampled_from(["*", "A", "B"]),
        st.integers(0, 3),
        st.sampled_from(MessageModel),
    ),
    st.just(member_leaves),
    st.just(log_loses_a_file),
    sends().map(asked),
    st.lists(pulls(), max_size=4).map(lambda many: asked(b"".join(many))),
)


def remembered(broker: RunningBroker) -> dict[str, object]:
    """All that a broker notes of pulls."""
    parts = broker.parts
    pairs = [(group, topic) for group in GROUPS for topic in TOPICS]
    tallies = [parts.state.stats.pulled(group, topic) for group, topic in pairs]
    carried = [parts.state.subscriptions.find(group, topic) for group, topic in pairs]
    return {
        "offsets": parts.state.offsets.snapshot().offset_table,
        "pulled": [parts.state.offsets.pulled(group, topic, queue_id) for group, topic in pairs for queue_id in (0, 1)],
        "resets": {key: dict(offsets) for key, offsets in parts.state.offsets.resets.items()},
        "odd commits": (parts.state.offsets.commits_lowered, parts.state.offsets.commits_ignored),
        "counted": [(tally.count, tally.joined, tally.bytes) for tally in tallies],
        "carried": [(found.sub_string, found.tags_set) if found else None for found in carried],
        "read": (sum(parts.state.stats.get_times.all_time().counts), parts.state.stats.missed),
    }


async def conversation(kinds: bytes, happens: list[Change], **store: Any) -> dict[str, object]:
    async with running(store=store) as broker:
        broker.make_topic("T", 2)
        broker.make_topic("U", 2)
        wire = await broker.network.at("10.1.0.1").connect(Wire, broker.broker.address)
        for queue_id in (0, 1):
            wire.transport.write(b"".join(usual_send(number, queue_id, b"body") for number in range(9)))
        for change in (member_beats("G", "T", "*", 1, MessageModel.CLUSTERING), asked(kinds), *happens):
            change(broker, wire)
            await settled()
            wire.transport.write(kinds * 2)  # the second time they were checked before
            await settled()
        await asyncio.sleep(0.2)
        return {"heard": wire.heard, "ended": wire.ended, **remembered(broker)}


@settings(max_examples=EXAMPLES * 3, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    st.lists(pulls(), min_size=3, max_size=6).map(b"".join),
    st.lists(changes, min_size=3, max_size=10),
    st.sampled_from(
        [{}, {"log_file_bytes": 4096, "prepared_files": 20}, {"memory_bytes": 2000, "max_read_entries": 3}]
    ),
)
def test_pulls_are_answered_the_same_whether_they_were_checked_before_or_not(
    kinds: bytes, happens: list[Change], store: dict[str, Any]
) -> None:
    compiled_or_skip()
    heard = []

    for name in BOTH:
        with using(name):
            heard.append(run(conversation(kinds, happens, **store)))

    assert heard[0] == heard[1]
