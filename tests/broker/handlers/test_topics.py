"""Requests of administrators about topics: an acknowledged change is done, registered and on the disk; answers are
Apache's.
"""

import asyncio
import errno
from itertools import islice
from typing import Any

import pytest
from msgspec.structs import replace
from tests.broker.handlers.administrated import Administrated, conversations, json_of, let_time_pass_while_stalled
from tests.golden import needs_golden

from pocketmq.broker.reads.filters import EVERYTHING
from pocketmq.codes import Perm, RequestCode, ResponseCode
from pocketmq.errors import StoreError
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.api.administration import CreateTopic, ForTopic, GetAllTopics
from pocketmq.protocol.bodies.clients import GroupList
from pocketmq.protocol.bodies.topics import (
    MappedTopicTable,
    TopicConfig,
    TopicConfigList,
    TopicFilterType,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from pocketmq.testing import run

CREATE, LIST = RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
DELETE = RequestCode.DELETE_TOPIC_IN_BROKER


def creating(topic: str, queues: int = 4, **changes: Any) -> CreateTopic:
    return replace(CreateTopic(topic, "TBW102", queues, queues, 6, "SINGLE_TAG", False), **changes)


# making and changing


def test_an_acknowledged_topic_is_registered_and_survives_a_power_loss() -> None:
    async def main() -> None:
        broker = Administrated()

        await broker.done(CREATE, creating("T", order=True, topic_sys_flag=1, attributes="+message.type=FIFO"))

        wanted = TopicConfig(
            "T", 4, 4, 6, TopicFilterType.SINGLE_TAG, 1, order=True, attributes={"message.type": "FIFO"}
        )
        assert broker.topics.get("T") == wanted
        assert broker.announced == 1
        assert broker.after_crash().topics.get("T") == wanted

    run(main())


def test_a_topic_is_not_acknowledged_before_it_is_on_the_disk() -> None:
    async def main() -> None:
        broker = Administrated()
        let_time_pass_while_stalled(broker.disk)
        with broker.disk.stall("sync", "*topics.json.tmp"):
            answer = asyncio.create_task(broker.ask(CREATE, creating("T")))
            await asyncio.sleep(10)
            assert not answer.done()
            assert "T" in broker.topics
        assert (await answer).code == ResponseCode.SUCCESS

    run(main())


def test_a_disk_error_is_reported_and_the_topic_is_kept_and_saved_later() -> None:
    async def main() -> None:
        broker = Administrated()
        with broker.disk.fail("sync", errno.ENOSPC, "*topics.json*"):
            answer = await broker.ask(CREATE, creating("T"))

        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "topics.json cannot be saved" in (answer.remark or "")
        assert "T" in broker.topics
        await broker.snapshots.save_changed()
        assert "T" in broker.after_crash().topics

    run(main())


def test_a_change_completes_although_the_administrator_disconnects() -> None:
    async def main() -> None:
        broker = Administrated()
        let_time_pass_while_stalled(broker.disk)
        with broker.disk.stall("sync", "*topics.json.tmp"):
            answer = asyncio.create_task(broker.ask(CREATE, creating("T")))
            await asyncio.sleep(1)
            answer.cancel()
            await asyncio.sleep(1)
        await broker.snapshots.save_changed()

        assert "T" in broker.after_crash().topics

    run(main())


@pytest.mark.parametrize(
    ("header", "code", "remark"),
    [
        (creating("bad*topic"), 29, "contains '*'"),
        (creating(""), 29, "empty"),
        (creating("T" * 128), 29, "128 characters"),
        (creating("TBW102"), 29, "belongs to the broker"),
        (creating("rmq_sys_mine"), 29, "belongs to the broker"),
        (creating("DefaultCluster"), 29, "belongs to the broker"),
        (creating("T", -1), 29, "-1 queues"),
        (creating("T", 70_000), 29, "70000 queues"),
        (creating("T", perm=64), 29, "unknown bits"),
        (creating("T", topic_filter_type="NO_TAG"), 29, "SINGLE_TAG and MULTI_TAG"),
        (creating("T", attributes="+colour=red"), 1, "'colour' is not supported"),
        (creating("T", attributes="message.type=FIFO"), 1, "must begin with +"),
    ],
)
def test_an_invalid_topic_is_refused_and_changes_nothing(header: CreateTopic, code: int, remark: str) -> None:
    async def main() -> None:
        broker = Administrated()
        before = broker.topics.snapshot()

        answer = await broker.ask(CREATE, header)

        assert answer.code == code
        assert remark in (answer.remark or "")
        assert broker.topics.snapshot() == before
        assert broker.announced == 0

    run(main())


def test_a_list_of_topics_is_created_completely() -> None:
    async def main() -> None:
        broker = Administrated()
        configs = TopicConfigList(
            (TopicConfig("A", 1, 1), TopicConfig("B", 2, 2, attributes={"+message.type": "DELAY"}))
        )

        await broker.done(LIST, body=configs.encode())

        again = broker.after_crash()
        assert again.topics.get("A") == TopicConfig("A", 1, 1)
        assert again.topics.get("B") == TopicConfig("B", 2, 2, attributes={"message.type": "DELAY"})
        assert broker.announced == 1

    run(main())


@pytest.mark.parametrize("body", [TopicConfigList((TopicConfig("A"), TopicConfig("b d"))).encode(), b"", b"{]"])
def test_a_list_with_one_invalid_topic_creates_none(body: bytes) -> None:
    async def main() -> None:
        broker = Administrated()

        answer = await broker.ask(LIST, body=body)

        assert answer.code != ResponseCode.SUCCESS
        assert answer.remark
        assert "A" not in broker.topics

    run(main())


# deleting


def test_a_deleted_topic_loses_its_queues_and_offsets_and_stays_deleted() -> None:
    async def main() -> None:
        broker = Administrated()
        await broker.done(CREATE, creating("T"))
        await broker.done(CREATE, creating("U"))
        broker.opened.send(b"1", b"2", topic="T")
        broker.opened.send(b"3", topic="U")
        for topic in ("T", "U"):
            broker.offsets.commit("g", topic, 0, 1)
        broker.opened.run_workers()

        await broker.done(DELETE, ForTopic("T"))

        assert broker.store.max_offset("T", 0) == 0
        for one in (broker, broker.after_crash()):
            assert ("T" in one.topics, "U" in one.topics) == (False, True)
            assert one.offsets.topics_of("g") == ["U"]
            assert "T" not in one.store.topics()

    run(main())


def test_only_pulls_of_a_deleted_topic_are_woken() -> None:
    async def main() -> None:
        broker = Administrated()
        for topic in ("T", "U"):
            await broker.done(CREATE, creating(topic))
        waiting = [asyncio.create_task(broker.arrivals.wait(topic, 0, EVERYTHING, 60)) for topic in ("T", "U")]
        await asyncio.sleep(1)

        await broker.done(DELETE, ForTopic("T"))
        await asyncio.sleep(1)

        assert [task.done() for task in waiting] == [True, False]
        broker.arrivals.stop()
        await asyncio.gather(*waiting)

    run(main())


def test_deleting_a_missing_topic_succeeds() -> None:
    async def main() -> None:
        broker = Administrated()
        broker.offsets.commit("g", "Gone", 0, 1)

        await broker.done(DELETE, ForTopic("Gone"))

        assert broker.offsets.topics_of("g") == []

    run(main())


@pytest.mark.parametrize("topic", ["TBW102", "SCHEDULE_TOPIC_XXXX", "DefaultCluster", "rmq_sys_x", "", "../../config"])
def test_system_topics_and_invalid_names_are_not_deleted(topic: str) -> None:
    async def main() -> None:
        broker = Administrated()
        rows = len(broker.topics)

        answer = await broker.ask(DELETE, ForTopic(topic))

        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert len(broker.topics) == rows

    run(main())


def test_a_deletion_interrupted_by_the_disk_is_completed_by_the_next() -> None:
    async def main() -> None:
        broker = Administrated()
        await broker.done(CREATE, creating("T"))
        broker.opened.send(b"1", topic="T")
        broker.opened.settle()
        with broker.disk.fail("unlink", path="*/consumequeue/*"):
            answer = await broker.ask(DELETE, ForTopic("T"))
        assert answer.code == StoreError.code
        assert "cannot be removed" in (answer.remark or "")
        assert "T" not in broker.topics

        await broker.done(DELETE, ForTopic("T"))

        assert "T" not in broker.store.topics()
        assert "T" not in broker.after_crash().topics

    run(main())


def test_only_queues_of_missing_topics_are_cleaned() -> None:
    async def main() -> None:
        broker = Administrated()
        await broker.done(CREATE, creating("T"))
        for topic in ("T", "Unused", "TRANS_CHECK_MAX_TIME_TOPIC", "%LMQ%light", "SELF_TEST_TOPIC"):
            broker.opened.send(b"1", topic=topic)

        await broker.done(RequestCode.CLEAN_UNUSED_TOPIC)

        assert broker.store.topics() == ["T", "TRANS_CHECK_MAX_TIME_TOPIC", "%LMQ%light", "SELF_TEST_TOPIC"]

    run(main())


# looking


def test_a_topic_is_returned_with_its_settings() -> None:
    async def main() -> None:
        broker = Administrated()
        await broker.done(CREATE, creating("T", 3, perm=int(Perm.READ)))

        answer = await broker.done(RequestCode.GET_TOPIC_CONFIG, ForTopic("T"))
        unknown = await broker.ask(RequestCode.GET_TOPIC_CONFIG, ForTopic("Nothing"))

        assert TopicConfig.decode(answer.body) == TopicConfig("T", 3, 3, Perm.READ)
        assert unknown.code == ResponseCode.TOPIC_NOT_EXIST

    run(main())


async def pages_of(broker: Administrated, size: int, version: str | None = None) -> list[str]:
    """The names that a slave reads in pages of `size`."""
    names: list[str] = []
    total = 1
    while len(names) < total:
        header = GetAllTopics(len(names), version, size)
        answer = await broker.done(RequestCode.GET_ALL_TOPIC_CONFIG, header)
        total = int((answer.ext or {})["totalTopicNum"])
        table = MappedTopicTable.decode(answer.body)
        version = table.data_version.encode().decode()
        names += table.topic_config_table
    return names


def test_all_topics_are_returned_at_once_or_in_pages() -> None:
    async def main() -> None:
        broker = Administrated()
        await broker.done(CREATE, creating("T"))

        whole = await broker.done(RequestCode.GET_ALL_TOPIC_CONFIG, GetAllTopics())

        assert MappedTopicTable.decode(whole.body) == broker.topics.registration()
        assert whole.ext == {"totalTopicNum": str(len(broker.topics))}
        assert sorted(await pages_of(broker, 5)) == sorted(row.topic_name for row in broker.topics)

    run(main())


def test_the_list_of_all_topics_is_always_current() -> None:
    async def main() -> None:
        broker = Administrated()

        async def told() -> MappedTopicTable:
            answer = await broker.done(RequestCode.GET_ALL_TOPIC_CONFIG, GetAllTopics())
            return MappedTopicTable.decode(answer.body)

        assert "T2" not in (await told()).topic_config_table
        await broker.done(CREATE, creating("T2"))
        assert (await told()) == broker.topics.registration()
        broker.topics.delete("T2", 1)
        assert (await told()) == broker.topics.registration()

    run(main())


def test_paging_restarts_when_the_table_changes() -> None:
    async def main() -> None:
        broker = Administrated()
        seen = broker.topics.version.encode().decode()
        await broker.done(CREATE, creating("T"))

        answer = await broker.done(RequestCode.GET_ALL_TOPIC_CONFIG, GetAllTopics(5, seen, 3))

        first = {row.topic_name for row in islice(broker.topics, 3)}
        assert MappedTopicTable.decode(answer.body).topic_config_table.keys() == first
        refused = await broker.ask(RequestCode.GET_ALL_TOPIC_CONFIG, GetAllTopics(-1, None, 3))
        assert refused.code == ResponseCode.INVALID_PARAMETER

    run(main())


def test_the_state_of_every_queue_is_returned() -> None:
    async def main() -> None:
        broker = Administrated()
        await broker.done(CREATE, creating("T", 2))
        broker.opened.send(b"1", b"2", topic="T", queue_id=1)
        broker.clock.advance_ms(500)
        broker.opened.send(b"3", topic="T", queue_id=1)
        broker.state.stats.sent("T").count = 25
        broker.state.stats.sample(broker.clock.monotonic() + 9.5, broker.clock.now_ms(), 0)

        answer = await broker.done(RequestCode.GET_TOPIC_STATS_INFO, ForTopic("T"))

        assert TopicStatsTable.decode(answer.body) == TopicStatsTable(
            {
                MessageQueue("T", "broker-a", 0): TopicOffset(0, 0, 0),
                MessageQueue("T", "broker-a", 1): TopicOffset(0, 3, broker.clock.now_ms()),
            },
            2.5,
        )

    run(main())


def test_groups_of_a_topic_are_those_with_members_or_offsets() -> None:
    async def main() -> None:
        broker = Administrated()
        broker.join("online", "T", "%RETRY%online")
        broker.join("elsewhere", "U")
        broker.offsets.commit("offline", "T", 0, 1)
        broker.offsets.commit("online", "T", 0, 1)

        answer = await broker.done(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, ForTopic("T"))
        nobody = await broker.done(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, ForTopic("Nothing"))

        assert sorted(GroupList.decode(answer.body).group_list) == ["offline", "online"]
        assert nobody.body == b'{"groupList":[]}'

    run(main())


# as Apache's broker says it


VERSIONS = pytest.mark.parametrize("version", ["5.3.3", "4.9.7"])


@needs_golden
@VERSIONS
@pytest.mark.parametrize("code", [CREATE, LIST, DELETE, RequestCode.CLEAN_UNUSED_TOPIC])
def test_changes_by_mqadmin_have_the_same_result_as_with_apache(code: RequestCode, version: str) -> None:
    async def main() -> None:
        broker = Administrated()

        for asked, theirs, ours in await broker.replay(code, version):
            if theirs.code == ResponseCode.SYSTEM_ERROR:  # what release 4.9 says to a bad name
                assert ours.code == ResponseCode.INVALID_PARAMETER
            else:
                assert ours.code == theirs.code
            assert ours.body == theirs.body == b""
            if code == CREATE and ours.code == ResponseCode.SUCCESS:
                made = broker.topics.require(CreateTopic.decode(asked.ext).topic)
                assert str(made.write_queue_nums) == (asked.ext or {})["writeQueueNums"]

    run(main())


@needs_golden
@VERSIONS
def test_one_topic_is_returned_as_by_apache(version: str) -> None:
    async def main() -> None:
        broker = Administrated()
        for _, theirs in conversations(RequestCode.GET_TOPIC_CONFIG, version):
            if theirs.code == ResponseCode.SUCCESS:
                broker.topics.ensure(TopicConfig.decode(theirs.body), 0)

        for _, theirs, ours in await broker.replay(RequestCode.GET_TOPIC_CONFIG, version):
            assert (ours.code, ours.remark) == (theirs.code, theirs.remark)
            assert ours.body == theirs.body

    run(main())


@needs_golden
@VERSIONS
def test_all_topics_are_returned_as_by_apache(version: str) -> None:
    async def main() -> None:
        for asked, theirs in conversations(RequestCode.GET_ALL_TOPIC_CONFIG, version):
            broker = Administrated()
            table = MappedTopicTable.decode(theirs.body)
            broker.topics.restore(table)

            ours = await broker.serve(asked)

            assert ours.code == theirs.code
            told = MappedTopicTable.decode(ours.body)
            assert told.data_version == table.data_version
            assert table.topic_config_table.items() <= told.topic_config_table.items()
            assert json_of(theirs).keys() <= json_of(ours).keys()

    run(main())


@needs_golden
@VERSIONS
def test_queues_are_counted_as_by_apache(version: str) -> None:
    async def main() -> None:
        for asked, theirs in conversations(RequestCode.GET_TOPIC_STATS_INFO, version):
            broker = Administrated()
            told = TopicStatsTable.decode(theirs.body) if theirs.code == ResponseCode.SUCCESS else TopicStatsTable()
            queues = len(told.offset_table)
            for queue, offsets in told.offset_table.items():
                broker.topics.ensure(TopicConfig(queue.topic, queues, queues), 0)
                broker.opened.send(*([b"1"] * offsets.max_offset), topic=queue.topic, queue_id=queue.queue_id)

            ours = await broker.serve(asked)

            assert (ours.code, ours.remark) == (theirs.code, theirs.remark)
            if queues:
                assert _without_times(TopicStatsTable.decode(ours.body)) == _without_times(told)
                assert json_of(theirs).keys() <= json_of(ours).keys()

    run(main())


def _without_times(told: TopicStatsTable) -> dict[MessageQueue, tuple[int, int]]:
    assert all(one.last_update_timestamp > 0 for one in told.offset_table.values())
    return {queue: (one.min_offset, one.max_offset) for queue, one in told.offset_table.items()}


@needs_golden
@VERSIONS
def test_groups_of_a_topic_are_returned_as_by_apache_except_the_topic_itself(version: str) -> None:
    async def main() -> None:
        broker = Administrated()
        for asked, theirs in conversations(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, version):
            topic = ForTopic.decode(asked.ext).topic
            wanted = set(GroupList.decode(theirs.body).group_list) - {topic}
            for group in wanted:
                broker.offsets.commit(group, topic, 0, 1)

            ours = await broker.serve(asked)

            assert ours.code == theirs.code
            assert set(GroupList.decode(ours.body).group_list) == wanted

    run(main())


@needs_golden
@VERSIONS
def test_system_topics_are_those_of_apache(version: str) -> None:
    async def main() -> None:
        broker = Administrated()
        for _, theirs, ours in await broker.replay(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, version):
            told = set(TopicList.decode(theirs.body).topic_list) - {"CHECKPOINT_TOPIC"}  # of a feature of theirs
            assert told <= set(TopicList.decode(ours.body).topic_list)

    run(main())
