"""Runs of pulls: they leave the turn that brought an answer only when they end."""

import asyncio
from typing import Any, cast

import pytest
from tests.client.consumer.test_pull_loop import PULL, pulled
from tests.client.kit import refuse, until
from tests.client.messages import Unobserved, process_queue, run_of

from pocketmq.client.consumer.flow_limits import PauseCause
from pocketmq.client.consumer.process_queue import CATCH_UP_S
from pocketmq.client.consumer.pull_loop import PullLoop, PullLoopSettings, PullRun
from pocketmq.client.consumer.pulling import PullEvents, Pulling, PullResult, PullStatus
from pocketmq.client.hooks import HookList, Hooks, PauseEvent, PullEvent
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import ConnectionLost
from pocketmq.model.queue import MessageQueue
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.command import Command
from pocketmq.protocol.hot_headers import StoredAnswer, StoredAt
from pocketmq.protocol.signing import Credentials
from pocketmq.testing import run

ANSWER = Command(0)
RESULT = PullResult(PullStatus.FOUND, 8, 8, 40)


class Script(PullLoop):
    """What becomes of each answer: the next pull is sent, the run ends, or it fails."""

    def __init__(self, *steps: bool | Exception, enough: int | None = None) -> None:
        # Nothing of a real loop is used but its queue: what it does with an answer is said by the test.
        self.steps = list(steps)
        self.sent = 0
        self.is_illegal = False
        self.owned = process_queue(observer=Unobserved(enough))
        self.settings = PullLoopSettings(batch=32, interval_s=None, retry_s=1, timeout_s=20.0, commits_offsets=True)
        self.events = PullEvents(HookList(), "G", None)
        self.pulling = cast("Pulling", self)
        self.run_of_pulls = PullRun(self, Subscription.parse("T"))

    def parse(self, answer: Command, queue: MessageQueue, subscription: Subscription) -> PullResult:
        assert (answer, queue) == (ANSWER, self.owned.queue)
        return RESULT

    def accept(self, result: PullResult, sent_at: float) -> bool:
        assert result is RESULT
        return not self.is_illegal

    def send_next(self, run: PullRun) -> bool:
        assert run is self.run_of_pulls
        self.sent += 1
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return step


def test_a_run_ends_with_the_first_answer_that_stops_pulling() -> None:
    async def main() -> None:
        script = Script(True, True, False)

        for is_over in (False, False, True):
            script.run_of_pulls.answered(ANSWER)
            assert script.run_of_pulls.ended.done() is is_over

        assert await script.run_of_pulls.ended is None

    run(main())


def test_an_answer_with_another_next_offset_is_returned() -> None:
    async def main() -> None:
        script = Script(False)
        script.is_illegal = True

        script.run_of_pulls.answered(ANSWER)

        assert await script.run_of_pulls.ended is RESULT

    run(main())


def test_exceptions_and_lost_answers_are_raised() -> None:
    async def main() -> None:
        wrong, lost = Script(True, ValueError("of a hook")), Script()
        wrong.run_of_pulls.answered(ANSWER)
        wrong.run_of_pulls.answered(ANSWER)
        lost.run_of_pulls.failed(ConnectionLost("away"))

        with pytest.raises(ValueError, match="of a hook"):
            await wrong.run_of_pulls.ended
        with pytest.raises(ConnectionLost):
            await lost.run_of_pulls.ended

    run(main())


def test_a_cancelled_run_accepts_no_answer() -> None:
    async def main() -> None:
        script = Script()
        script.run_of_pulls.ended.cancel()

        script.run_of_pulls.answered(ANSWER)
        script.run_of_pulls.failed(ConnectionLost("away"))

        with pytest.raises(asyncio.CancelledError):
            await script.run_of_pulls.ended

    run(main())


def test_a_run_is_shown_as_a_pull_and_needs_complete_answers() -> None:
    async def main() -> None:
        waiting = Script().run_of_pulls

        assert (waiting.code, waiting.timeout_s) == (RequestCode.PULL_MESSAGE, 20.0)
        assert not waiting.stored(StoredAnswer(0, 1, 7, StoredAt("", "0", "0")))

    run(main())


def busy(*steps: bool | Exception) -> Script:
    """Listeners of its queue have two messages more than enough, and are at all of them."""
    script = Script(*steps, enough=10)
    script.owned.put(run_of(0, 12))
    script.owned.take(12, 0.0)
    return script


def test_the_next_pull_waits_until_listeners_have_few_messages() -> None:
    async def main() -> None:
        script = busy(True, True)
        owned = script.owned

        script.run_of_pulls.answered(ANSWER)
        owned.finish(run_of(0, 1), 0.0)
        owned.consumption_changed()
        assert script.sent == 0
        owned.finish(run_of(1, 2), 0.0)
        owned.consumption_changed()
        assert script.sent == 1

        owned.finish(run_of(2, 3), 0.0)
        owned.consumption_changed()
        await asyncio.sleep(1)
        assert script.sent == 1, "it leaves once"

    run(main())


def test_slow_listeners_are_not_waited_for() -> None:
    async def main() -> None:
        script = busy(True, False)

        script.run_of_pulls.answered(ANSWER)
        await asyncio.sleep(CATCH_UP_S * 0.9)
        assert script.sent == 0
        await asyncio.sleep(CATCH_UP_S * 0.2)
        assert script.sent == 1

        script.run_of_pulls.answered(ANSWER)
        assert await script.run_of_pulls.ended is None

    run(main())


def test_the_result_of_a_delayed_pull_ends_the_run() -> None:
    async def main() -> None:
        script = busy(ValueError("no line"))

        script.run_of_pulls.answered(ANSWER)

        with pytest.raises(ValueError, match="no line"):
            await script.run_of_pulls.ended

    run(main())


def test_a_delayed_pull_is_not_sent_after_the_loop_was_cancelled() -> None:
    async def main() -> None:
        script = busy()
        owned = script.owned
        script.run_of_pulls.answered(ANSWER)
        script.run_of_pulls.ended.cancel()

        owned.finish(run_of(0, 5), 0.0)
        owned.consumption_changed()
        await asyncio.sleep(CATCH_UP_S * 2)

        assert script.sent == 0

    run(main())


@pytest.mark.parametrize("credentials", [None, Credentials("key", "secret")], ids=["unsigned", "signed"])
def test_quick_listeners_do_not_wait_at_the_queue_limit(credentials: Credentials | None) -> None:
    async def main() -> None:
        options: dict[str, Any] = {"workers": 2, "credentials": credentials}
        async with pulled(lambda _: asyncio.sleep(0.0002), **options) as (_, broker, consumer):
            broker.messages = 6400
            async with consumer:
                await until(lambda: broker.pulls and broker.pulls[-1].queue_offset == 6400)
                assert not any(consumer.pauses.values())

    run(main())


def test_the_queue_of_slow_listeners_fills_up_to_its_limit() -> None:
    async def main() -> None:
        async with pulled(lambda _: asyncio.sleep(60), workers=2) as (_, broker, consumer):
            broker.messages = 6400
            async with consumer:
                await until(lambda: consumer.pauses[PauseCause.MESSAGES] > 3)

            assert broker.pulls[-1].queue_offset + 32 == 1024

    run(main())


class _Told(Hooks):
    """The events that hooks get for pulls, without times."""

    def __init__(self) -> None:
        self.said: list[tuple[object, ...]] = []

    def after_pull(self, event: PullEvent) -> None:
        self.said.append((event.queue.queue_id, event.messages, event.behind, event.cached))

    def after_pause(self, event: PauseEvent) -> None:
        self.said.append((event.queue.queue_id, event.cause))


def _course(in_runs: bool) -> list[Any]:
    """All requests and notifications for given answers of a broker, with pulls in runs or awaited one by one."""
    told = _Told()
    seen: list[Any] = []

    async def main() -> None:
        async with pulled(lambda _: asyncio.sleep(0.02), hooks=[told], max_queue_messages=64) as (_, broker, consumer):
            broker.messages = 300
            found = broker._pull
            broker.script(PULL, found, found, broker.answer(ResponseCode.PULL_RETRY_IMMEDIATELY, 70), found)
            broker.script(PULL, broker.answer(ResponseCode.PULL_NOT_FOUND, 102), refuse(ResponseCode.SYSTEM_ERROR))
            broker.script(PULL, found, found, broker.answer(ResponseCode.PULL_OFFSET_MOVED, 200), found, found)
            async with consumer:
                await asyncio.sleep(2)
                broker.network.cut(broker.address)
                await asyncio.sleep(5)
                consumer.pause()
                await asyncio.sleep(40)
                broker.messages = 400
                consumer.resume()
                await asyncio.sleep(40)
                seen.append({cause: count for cause, count in consumer.pauses.items() if count})
            fields = ("queue_offset", "commit_offset", "sys_flag", "max_msg_nums", "subscription", "expression_type")
            seen.append([[getattr(pull, name) for name in fields] for pull in broker.pulls])
            seen.append(broker.committed)

    with pytest.MonkeyPatch.context() as patch:
        if not in_runs:
            patch.setattr(Pulling, "send", lambda *_, **__: False)
        run(main())
    return [*seen, told.said]


def test_pulls_in_a_run_match_pulls_that_are_awaited_one_by_one() -> None:
    in_runs, alone = _course(in_runs=True), _course(in_runs=False)

    assert in_runs == alone
    pauses, pulls, committed, _ = in_runs
    assert pauses.keys() == {PauseCause.PAUSED, PauseCause.MESSAGES}
    assert len(pulls) > 12
    assert committed == 400


def test_a_run_continues_without_the_task_of_its_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    begin = PullRun.__init__

    def note(run: PullRun, pulls: PullLoop, subscription: Subscription) -> None:
        begun.append(pulls.owned.queue.topic)
        begin(run, pulls, subscription)

    async def main() -> None:
        async with pulled() as (_, broker, consumer):
            broker.messages = 3200
            async with consumer:
                await until(lambda: len(broker.pulls) > 100)

            assert [pull.queue_offset for pull in broker.pulls] == [*range(0, 3201, 32)]
            assert begun.count("T") <= 2  # one before the broker knows this client

    monkeypatch.setattr(PullRun, "__init__", note)
    run(main())


def test_after_a_failure_a_pull_runs_alone_and_the_recovery_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with pulled() as (_, broker, consumer):
            broker.messages = 320
            broker.script(PULL, broker._pull, refuse(ResponseCode.SYSTEM_ERROR), refuse(ResponseCode.SYSTEM_ERROR))
            async with consumer:
                await until(lambda: broker.pulls and broker.pulls[-1].queue_offset == 320)

    with caplog.at_level("INFO", "pocketmq.client"):
        run(main())
    assert [one.message for one in caplog.records if "succeed again" in one.message] == [
        "pulls of T@broker-a:0 succeed again"
    ]
    assert len([one for one in caplog.records if "pull of T@broker-a:0 failed" in one.message]) == 1
