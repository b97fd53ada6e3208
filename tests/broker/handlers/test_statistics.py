"""Requests for statistics of the broker and its groups."""

import json

from tests.broker.handlers.admin_talk import ADDRESS, BROKER, Desk, real_answers
from tests.golden import needs_golden
from tests.store.open_store import OpenStore, numbered

from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.api.administration import GetBrokerConsumeStats, GetConsumeStats, ViewBrokerStats
from pocketmq.protocol.api.messages import QueryConsumeTimeSpan
from pocketmq.protocol.bodies.topics import (
    BrokerStatsData,
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpans,
    OffsetProgress,
    QueueTimeSpan,
)
from pocketmq.protocol.java_json import read_json
from pocketmq.testing import run
from pocketmq.testing.fake_clock import START_MS


async def consume_stats(desk: Desk, group: str, topic: str | None = None, topics: str | None = None) -> ConsumeStats:
    answer = await desk.done(RequestCode.GET_CONSUME_STATS, GetConsumeStats(group, topic, topics))
    return ConsumeStats.decode(answer.body)


def queue(topic: str, queue_id: int = 0) -> MessageQueue:
    return MessageQueue(topic, BROKER, queue_id)


# 28 and 315


def test_the_broker_reports_its_runtime_info() -> None:
    async def main() -> None:
        desk = Desk()
        desk.opened.send(*numbered(3))
        desk.stats.sent("T").count += 3

        answer = await desk.done(RequestCode.GET_BROKER_RUNTIME_INFO)

        table = json.loads(answer.body)["table"]
        assert table["msgPutTotalTodayNow"] == "3"
        assert table["commitLogMaxOffset"] == str(desk.store.end)

    run(main())


def test_a_statistic_is_found_by_name_and_key() -> None:
    async def main() -> None:
        desk = Desk()
        desk.stats.sent("T").count += 5
        desk.sample()

        answer = await desk.done(RequestCode.VIEW_BROKER_STATS_DATA, ViewBrokerStats("TOPIC_PUT_NUMS", "T"))

        told = BrokerStatsData.decode(answer.body)
        assert told.stats_minute.sum == told.stats_hour.sum == told.stats_day.sum == 5
        assert told.stats_minute.tps == 0.5

    run(main())


@needs_golden
def test_a_missing_statistic_is_refused_in_the_words_of_apache() -> None:
    async def main() -> None:
        desk = Desk()
        refused = [
            (asked.command, told.command)
            for asked, told in real_answers(RequestCode.VIEW_BROKER_STATS_DATA)
            if told.command.code != ResponseCode.SUCCESS
        ]
        assert refused

        for asked, told in refused:
            answer = await desk.answer(asked)
            assert (answer.code, answer.remark) == (told.code, told.remark)

    run(main())


# 208


def test_the_progress_of_a_group_has_every_queue_of_its_topics() -> None:
    async def main() -> None:
        desk = Desk()
        desk.make_topic("T", 2)
        desk.make_topic("%RETRY%g")
        desk.opened.send(*numbered(4))
        desk.clock.advance_ms(1000)
        desk.opened.send(b"later")
        desk.offsets.commit("g", "T", 0, 4)
        desk.offsets.record_pull("g", "T", 0, 5)
        desk.offsets.commit("g", "%RETRY%g", 0, 0)
        desk.sample()
        desk.stats.pulled("g", "T").count += 5
        desk.sample()

        told = await consume_stats(desk, "g")

        assert told.offset_table == {
            queue("T"): OffsetProgress(5, 4, 5, START_MS),
            queue("T", 1): OffsetProgress(),
            queue("%RETRY%g"): OffsetProgress(),
        }
        assert told.consume_tps == 0.5

    run(main())


def test_the_progress_of_a_group_is_limited_to_the_requested_topics() -> None:
    async def main() -> None:
        desk = Desk()
        for topic in "TUV":
            desk.make_topic(topic)
            desk.offsets.commit("g", topic, 0, 0)

        async def topics(topic: str | None, several: str | None = None) -> set[str]:
            told = await consume_stats(desk, "g", topic, several)
            return {one.topic for one in told.offset_table}

        assert await topics(None) == {"T", "U", "V"}
        assert await topics("U") == {"U"}
        assert await topics(None, "T;V;") == {"T", "V"}
        assert await topics("NoSuchTopic") == set()

    run(main())


def test_an_unknown_group_has_consumed_nothing() -> None:
    async def main() -> None:
        desk = Desk()
        desk.make_topic("T")
        desk.opened.send()

        told = await consume_stats(desk, "nobody", "T")

        assert told.offset_table == {queue("T"): OffsetProgress(broker_offset=1)}
        assert (await consume_stats(desk, "nobody")).offset_table == {}

    run(main())


# 317


def test_all_groups_are_returned_with_their_lag() -> None:
    async def main() -> None:
        desk = Desk()
        desk.make_topic("T")
        desk.make_topic("U", order=True)
        desk.make_group("g", "h")
        desk.opened.send(*numbered(10))
        desk.opened.send(*numbered(5), topic="U")
        desk.offsets.commit("g", "T", 0, 4)
        desk.offsets.record_pull("g", "T", 0, 6)
        desk.offsets.commit("h", "U", 0, 5)

        async def told(*, is_order: bool) -> ConsumeStatsList:
            answer = await desk.done(RequestCode.GET_BROKER_CONSUME_STATS, GetBrokerConsumeStats(is_order))
            return ConsumeStatsList.decode(answer.body)

        everything, ordered = await told(is_order=False), await told(is_order=True)

        groups = {group: stats for one in everything.consume_stats_list for group, stats in one.items()}
        assert groups.keys() == {config.group_name for config in desk.groups}
        assert groups["g"] == (ConsumeStats({queue("T"): OffsetProgress(10, 4, 6, START_MS)}),)
        assert (everything.broker_addr, everything.total_diff, everything.total_inflight_diff) == (ADDRESS, 6, 2)
        assert {"g": ()} in ordered.consume_stats_list
        assert ordered.total_diff == 0

    run(main())


@needs_golden
def test_answers_about_groups_have_the_form_of_the_captured_ones() -> None:
    async def main() -> None:
        desk = Desk()
        for name in ("StayTopic", "RawTopic", "%RETRY%CG_stay"):
            desk.make_topic(name, 2)
            for group in ("CG_stay", "CG_raw"):
                desk.offsets.commit(group, name, 0, 1)
        desk.make_group("CG_stay")
        compared = 0

        for code in (RequestCode.GET_CONSUME_STATS, RequestCode.GET_BROKER_CONSUME_STATS):
            for asked, told in real_answers(code):
                ours = await desk.answer(asked.command)
                assert ours.code == told.command.code
                assert shape(read_json(ours.body)) == shape(read_json(told.command.body)), asked.name
                compared += 1
        assert compared > 10

    run(main())


def shape(value: object) -> object:
    """The structure of a JSON value: of an object with fixed names the names, of other maps and of lists their
    contents.
    """
    if isinstance(value, list):
        return ["list", *sorted({json.dumps(shape(item)) for item in value if item not in ({}, [])})]
    if isinstance(value, dict) and any(isinstance(item, list) for item in value.values()) and len(value) == 1:
        return ["group"]
    if isinstance(value, dict) and all(isinstance(item, dict) for item in value.values()):
        return ["map", *sorted({json.dumps(shape(item)) for item in value.values()})]
    if isinstance(value, dict):
        return {str(name): shape(item) for name, item in sorted(value.items())}
    return type(value).__name__


# 303


def test_times_of_the_first_last_and_consumed_message_are_returned() -> None:
    async def main() -> None:
        desk = Desk()
        desk.make_topic("T", 2)
        for _ in range(3):
            desk.opened.send()
            desk.clock.advance_ms(1000)
        desk.offsets.commit("g", "T", 0, 1)

        answer = await desk.done(RequestCode.QUERY_CONSUME_TIME_SPAN, QueryConsumeTimeSpan("T", "g"))

        used, empty = ConsumeTimeSpans.decode(answer.body).consume_time_span_set
        assert used == QueueTimeSpan(queue("T"), START_MS, START_MS + 2000, START_MS, 2000)
        assert empty == QueueTimeSpan(queue("T", 1), -1, -1, -1, 0)

    run(main())


def test_a_group_that_consumed_everything_has_no_waiting_messages() -> None:
    async def main() -> None:
        desk = Desk()
        desk.make_topic("T")
        desk.opened.send()
        desk.clock.advance_ms(5000)
        desk.offsets.commit("g", "T", 0, 1)

        answer = await desk.done(RequestCode.QUERY_CONSUME_TIME_SPAN, QueryConsumeTimeSpan("T", "g"))

        (span,) = ConsumeTimeSpans.decode(answer.body).consume_time_span_set
        assert (span.consume_time_stamp, span.delay_time) == (START_MS, 0)

    run(main())


def test_the_lag_after_retention_is_the_age_of_the_first_remaining_message() -> None:
    async def main() -> None:
        desk = Desk(OpenStore.small(retention_hours=1))
        desk.make_topic("T")
        desk.opened.send(*numbered(60))
        desk.offsets.commit("g", "T", 0, 1)
        desk.opened.tick(2 * 3_600_000)
        desk.opened.send(b"young")
        assert desk.store.drop_expired()
        desk.opened.tick(5000)

        answer = await desk.done(RequestCode.QUERY_CONSUME_TIME_SPAN, QueryConsumeTimeSpan("T", "g"))

        (span,) = ConsumeTimeSpans.decode(answer.body).consume_time_span_set
        assert (span.min_time_stamp, span.delay_time) == (START_MS, 2 * 3_600_000 + 5000)
        assert span.consume_time_stamp == -1

    run(main())


def test_time_spans_of_an_unknown_topic_are_refused() -> None:
    async def main() -> None:
        answer = await Desk().ask(RequestCode.QUERY_CONSUME_TIME_SPAN, QueryConsumeTimeSpan("T", "g"))

        assert answer.code == ResponseCode.TOPIC_NOT_EXIST

    run(main())
