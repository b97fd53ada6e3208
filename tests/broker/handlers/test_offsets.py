"""Requests about the ends of queues, compared with the answers of Apache's broker."""

import pytest
from tests.broker.handlers.admin_talk import Desk, real_answers
from tests.golden import needs_golden
from tests.store.open_store import OpenStore, numbered

from pocketmq.broker.handlers import offsets as handlers
from pocketmq.codes import BoundaryType, RequestCode, ResponseCode
from pocketmq.protocol.api.messages import ForQueue, GetMaxOffset, OffsetReply, SearchOffset, StoreTimeReply
from pocketmq.protocol.bodies.topics import ConsumerOffsets
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import Fields
from pocketmq.testing import run
from pocketmq.testing.fake_clock import START_MS


async def offset(desk: Desk, code: RequestCode, header: Fields) -> int:
    return OffsetReply.decode((await desk.done(code, header)).ext).offset


async def at_time(desk: Desk, when_ms: int, boundary: BoundaryType | None = None, topic: str = "T") -> int:
    return await offset(desk, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffset(topic, 0, when_ms, boundary))


def three_messages() -> Desk:
    """One a second."""
    desk = Desk()
    for _ in range(3):
        desk.opened.send()
        desk.clock.advance_ms(1000)
    return desk


@pytest.mark.parametrize(
    ("after_ms", "lower", "upper"),
    [(-1, 0, 0), (0, 0, 0), (1, 1, 0), (1000, 1, 1), (1500, 2, 1), (2000, 2, 2), (2001, 3, 2), (10**12, 3, 2)],
)
def test_an_offset_is_found_by_time(after_ms: int, lower: int, upper: int) -> None:
    async def main() -> None:
        desk = three_messages()

        assert await at_time(desk, START_MS + after_ms) == lower
        assert await at_time(desk, START_MS + after_ms, BoundaryType.LOWER) == lower
        assert await at_time(desk, START_MS + after_ms, BoundaryType.UPPER) == upper

    run(main())


def test_bounds_follow_deleted_messages() -> None:
    async def main() -> None:
        desk = Desk(OpenStore.small(retention_hours=1))
        desk.opened.send(*numbered(60))
        desk.opened.tick(2 * 3_600_000)
        desk.opened.send(b"young")
        desk.store.drop_expired()
        desk.opened.tick()

        smallest = await offset(desk, RequestCode.GET_MIN_OFFSET, ForQueue("T", 0))
        largest = await offset(desk, RequestCode.GET_MAX_OFFSET, GetMaxOffset("T", 0, committed=True))

        assert 0 < smallest < 60
        assert largest == 61

    run(main())


def test_the_first_store_time_of_a_queue_is_returned() -> None:
    async def main() -> None:
        desk = three_messages()

        async def earliest(queue_id: int) -> int:
            header = ForQueue("T", queue_id)
            answer = await desk.done(RequestCode.GET_EARLIEST_MSG_STORETIME, header)
            return StoreTimeReply.decode(answer.ext).timestamp

        assert await earliest(0) == START_MS
        assert await earliest(1) == -1

    run(main())


def test_a_missing_queue_is_empty() -> None:
    async def main() -> None:
        desk = Desk()

        assert await offset(desk, RequestCode.GET_MAX_OFFSET, GetMaxOffset("NoTopic", 7)) == 0
        assert await offset(desk, RequestCode.GET_MIN_OFFSET, ForQueue("NoTopic", -7)) == 0
        assert await at_time(desk, 0, topic="../..") == 0

    run(main())


def test_the_offsets_of_all_groups_are_returned() -> None:
    async def main() -> None:
        desk = Desk()
        desk.offsets.commit("g", "T", 0, 12)
        desk.offsets.commit("g", "T", 3, 7)

        answer = await desk.done(RequestCode.GET_ALL_CONSUMER_OFFSET)

        assert ConsumerOffsets.decode(answer.body).offset_table == {"T@g": {0: 12, 3: 7}}
        assert desk.offsets.is_changed, "reporting an offset does not save it"
        assert (await desk.done(RequestCode.GET_ALL_DELAY_OFFSET)).body == b'{"offsetTable":{3:0}}'

    run(main())


def test_a_table_above_the_frame_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "MAX_TABLE_BYTES", 100)

    async def main() -> None:
        desk = Desk()
        for queue_id in range(20):
            desk.offsets.commit("g", "T", queue_id, 10**6)

        answer = await desk.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)

        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "query group by group" in (answer.remark or "")

    run(main())


@needs_golden
@pytest.mark.parametrize(
    "code",
    [
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
    ],
)
def test_queries_have_the_fields_of_the_captured_answers(code: RequestCode) -> None:
    async def main() -> None:
        asked: list[tuple[Command, Command]] = [(one.command, two.command) for one, two in real_answers(code)]
        assert asked
        desk = Desk()

        for question, told in asked:
            answer = await desk.answer(question)

            assert answer.code == told.code == ResponseCode.SUCCESS
            assert (answer.ext or {}).keys() == (told.ext or {}).keys()

    run(main())
