"""The progress of groups: omitted topics and long answers. `handlers/test_statistics` compares the answers
themselves.
"""

import asyncio

import pytest
from tests.broker.handlers.admin_talk import Desk

from pocketmq.broker.handlers import administration
from pocketmq.errors import ImpossibleRequest
from pocketmq.model.subscription import Subscription
from pocketmq.net import loops as steps
from pocketmq.testing import run


async def topics(desk: Desk, group: str) -> set[str]:
    told = await desk.progress.of_group(group)
    return {queue.topic for queue in told.offset_table}


def test_the_progress_of_a_group_with_members_covers_its_subscribed_topics() -> None:
    async def main() -> None:
        desk = Desk()
        for topic in "TU":
            desk.make_topic(topic)
            desk.offsets.commit("g", topic, 0, 0)
        assert await topics(desk, "g") == {"T", "U"}

        desk.join("g", Subscription("U", sub_version=1))

        assert await topics(desk, "g") == {"U"}

    run(main())


def test_members_without_subscriptions_omit_no_topic() -> None:
    async def main() -> None:
        desk = Desk()
        desk.make_topic("T")
        desk.offsets.commit("g", "T", 0, 0)

        desk.join("g")

        assert await topics(desk, "g") == {"T"}

    run(main())


def test_a_deleted_topic_is_omitted() -> None:
    async def main() -> None:
        desk = Desk()
        desk.make_topic("T")
        desk.offsets.commit("g", "T", 0, 5)

        desk.topics.delete("T", 0)

        assert await topics(desk, "g") == set()

    run(main())


def test_long_answers_pause_for_other_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "STEP_SECONDS", -1.0)

    async def main() -> None:
        desk = Desk()
        desk.make_topic("T", 50)
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(others())
        await desk.progress.of_group("g", ["T"])
        other.cancel()

        assert turns >= 50

    run(main())


def test_an_answer_above_the_size_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(administration, "MAX_QUEUES_PER_ANSWER", 10)

    async def main() -> None:
        desk = Desk()
        desk.make_topic("T", 10)
        desk.make_topic("U", 11)

        assert len((await desk.progress.of_group("g", ["T"])).offset_table) == 10
        with pytest.raises(ImpossibleRequest, match="one topic at a time"):
            await desk.progress.of_group("g", ["U"])
        with pytest.raises(ImpossibleRequest, match="one topic at a time"):
            await desk.progress.time_spans("g", "U", 0)

    run(main())
