"""Checked pulls: which of them the C twin answers, and what makes the broker check again."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.broker.running import Client, RunningBroker, in_virtual_time, offsets_of, pulling, request, running, settled
from tests.broker.test_authentication import connect, guarded
from tests.twins import compiled_or_skip, using

from pocketmq.broker.handlers import checked_pulls
from pocketmq.codes import PullFlag, RequestCode, ResponseCode
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.bodies.clients import SubscriptionGroupConfig
from pocketmq.protocol.command import Command
from pocketmq.testing import run

PULL = RequestCode.PULL_MESSAGE


@pytest.fixture(autouse=True)
def compiled_twin() -> Any:
    compiled_or_skip()
    with using("compiled"):
        yield


class Taken:
    """Counts the pulls that the compiled twin answers."""

    def __init__(self, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        checked = broker.parts.checked
        serve_run = checked.serve_run

        def noted(*args: Any) -> tuple[int, list[bytes | memoryview]]:
            result = serve_run(*args)
            self.count += result[0]
            return result

        monkeypatch.setattr(checked, "serve_run", noted)

    def take(self) -> int:
        taken, self.count = self.count, 0
        return taken


async def filled(broker: RunningBroker, count: int = 5) -> Client:
    broker.make_topic()
    client = await broker.connect()
    for number in range(count):
        await client.sent(b"%d" % number)
    return client


@in_virtual_time
async def test_a_pull_is_checked_once_and_equal_ones_are_answered_by_the_twin() -> None:
    async with running() as broker:
        with pytest.MonkeyPatch.context() as patch:
            client, taken = await filled(broker), Taken(broker, patch)

            answers = [await client.pull(offset) for offset in (0, 1, 4)]

            assert taken.take() == 2
            assert [offsets_of(answer) for answer in answers] == [(5, 0, 5)] * 3
            assert (
                broker.parts.state.stats.pulled("G", "T").count,
                broker.parts.state.stats.pulled("G", "T").calls,
            ) == (10, 3)
            assert broker.parts.state.offsets.pulled("G", "T", 0) == 5


@in_virtual_time
async def test_pulls_of_one_read_are_answered_together_and_their_offsets_committed() -> None:
    async with running() as broker:
        with pytest.MonkeyPatch.context() as patch:
            client, taken = await filled(broker), Taken(broker, patch)
            flags = PullFlag.SUBSCRIPTION | PullFlag.COMMIT_OFFSET
            await client.ask(PULL, pulling(0, flags=flags, commit=1))
            again = [request(PULL, pulling(offset, flags=flags, commit=offset)) for offset in (2, 3, 4)]

            answers = [await answer for answer in broker.serve_now(client, *again)]

            assert taken.take() == 3
            assert [answer.remark for answer in answers] == ["FOUND"] * 3
            assert broker.parts.state.offsets.stored("G", "T", 0) == 4


@in_virtual_time
async def test_the_twin_answers_large_ranges_as_python_does() -> None:
    async with running(store={"log_file_bytes": 512 * 1024}) as broker:
        with pytest.MonkeyPatch.context() as patch:
            client, taken = await filled(broker, 1), Taken(broker, patch)
            for number in range(20):
                await client.sent(bytes([number]) * 8_000)

            first, *others = [await client.pull(0) for _ in range(3)]

            assert taken.take() == 2
            assert len(first.body) > 160_000
            assert [(other.body, offsets_of(other)) for other in others] == [(first.body, offsets_of(first))] * 2


Change = Callable[[RunningBroker], None]


CHANGES: dict[str, Change] = {
    "topic": lambda broker: broker.make_topic("T", 4, 2),
    "group": lambda broker: broker.parts.state.groups.put([SubscriptionGroupConfig("G", consume_enable=False)], 0),
    "forbidden": lambda broker: broker.parts.state.groups.set_readable("G", "T", False, 0),
    "broker": lambda broker: broker.change(permission=2),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_client_that_loses_a_permission_is_refused_at_once(what: str) -> None:
    async def talk() -> None:
        async with running() as broker:
            client = await filled(broker)
            assert [(await client.pull()).code for _ in range(3)] == [ResponseCode.SUCCESS] * 3

            CHANGES[what](broker)

            assert (await client.pull()).code == ResponseCode.NO_PERMISSION
            assert not len(broker.parts.checked)

    run(talk())


@in_virtual_time
async def test_changed_subscriptions_and_leaving_members_take_effect() -> None:
    async with running() as broker:
        broker.make_topic()
        client, member = await broker.connect(), await broker.connect()
        for tag in "ABAB":
            await client.sent(tag.encode(), properties={"TAGS": tag})
        await member.beat("G", Subscription.parse("T", "A", sub_version=1))

        async def found() -> Command:
            return await client.pull(flags=0, expression=None, version=1)

        first = [await found() for _ in range(2)]
        await member.beat("G", Subscription.parse("T", "*", sub_version=2))
        second = [await found() for _ in range(2)]
        await member.beat("G", Subscription.parse("T", "*", sub_version=2))  # nothing new
        assert len(broker.parts.checked) == 1
        member.peer.connection.close()
        await member.peer.connection.wait_lost()
        await settled()
        third = await found()

        assert [len(answer.body) for answer in first] == [len(second[0].body) // 2] * 2
        assert second[0].body == second[1].body
        assert third.code == ResponseCode.SUBSCRIPTION_NOT_EXIST


@in_virtual_time
async def test_the_next_pull_gets_a_reset_once() -> None:
    async with running() as broker:
        client = await filled(broker)
        assert [(await client.pull(3)).code for _ in range(2)] == [ResponseCode.SUCCESS] * 2

        broker.parts.state.offsets.reset("G", "T", {0: 1})

        answer = await client.pull(3)
        assert (answer.code, offsets_of(answer)[0]) == (ResponseCode.PULL_OFFSET_MOVED, 1)
        assert (await client.pull(1)).code == ResponseCode.SUCCESS


@in_virtual_time
async def test_a_recreated_topic_is_read_from_its_own_queue() -> None:
    async with running() as broker:
        client = await filled(broker)
        await client.pull()
        await client.pull()
        parts = broker.parts
        parts.state.topics.delete("T", 0)
        parts.state.offsets.delete_topic("T")
        parts.state.store.delete_topic("T")
        parts.state.stats.forget_topic("T")

        await filled(broker, 2)

        assert offsets_of(await client.pull()) == (2, 0, 2)
        assert offsets_of(await client.pull()) == (2, 0, 2)
        assert parts.state.stats.pulled("G", "T").count == 4


@in_virtual_time
async def test_the_number_of_cached_checks_is_limited() -> None:
    async with running() as broker:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(checked_pulls, "MAX_CHECKED", 3)
            client = await filled(broker)

            for number in range(5):
                await client.pull(group=f"G{number}")
                assert len(broker.parts.checked) <= 3

            assert (await client.pull(group="G0")).remark == "FOUND"


@in_virtual_time
async def test_a_subscription_above_the_size_limit_is_not_cached() -> None:
    async with running() as broker:
        client = await filled(broker)
        await client.sent(properties={"TAGS": "A"})

        answer = await client.pull(expression="A || " + "B" * 2000)

        assert answer.remark == "FOUND"
        assert not len(broker.parts.checked)


@in_virtual_time
async def test_signed_requests_are_verified_each_time_and_not_cached() -> None:
    async with guarded() as broker:
        client = await connect(broker)
        await client.sent(b"body")

        assert [(await client.pull()).remark for _ in range(3)] == ["FOUND"] * 3
        client.credentials = None
        refused = await client.pull()

        assert refused.code == ResponseCode.NO_PERMISSION
        assert not len(broker.parts.checked)


@in_virtual_time
async def test_without_the_twin_no_check_is_cached() -> None:
    with using("python"):
        async with running() as broker:
            client = await filled(broker)

            assert (await client.pull()).remark == "FOUND"

            assert not broker.parts.checked.in_use
            assert not len(broker.parts.checked)
