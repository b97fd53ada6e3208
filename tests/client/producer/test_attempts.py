"""Attempts of a send: retries, their targets and pauses, the deadline, and hooks."""

import asyncio
import itertools
from typing import Any

import pytest
from tests.client.kit import Cluster, after, cluster, ignore, refuse

from pocketmq.client.hooks import Hooks, SendEvent
from pocketmq.client.producer.results import SendStatus
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import (
    CallTimedOut,
    InvalidMessage,
    InvalidParameter,
    MessageIllegal,
    PocketMQError,
    RemoteError,
    SystemBusy,
)
from pocketmq.model.message import Message
from pocketmq.model.queue import MessageQueue
from pocketmq.testing import run

SEND = RequestCode.SEND_MESSAGE_V2


QUEUE = MessageQueue("T", "broker-a", 1)


def sent_to(c: Cluster) -> dict[str, int]:
    return {name: len(broker.sends) for name, broker in c.brokers.items()}


def refuse_everywhere(c: Cluster, code: int, remark: str = "refused") -> None:
    for broker in c.brokers.values():
        broker.answers[SEND] = refuse(code, remark)


@pytest.mark.parametrize("code", [1, 14, 16, 17, 204, 205, 1500])
def test_a_retriable_refusal_is_retried_twice_at_another_broker(code: int) -> None:
    async def main() -> None:
        async with cluster("broker-a", "broker-b") as c, c.producer() as producer:
            refuse_everywhere(c, code)

            with pytest.raises(RemoteError) as caught:
                await producer.send("T", b"x")

            assert caught.value.response_code == code
            assert sorted(sent_to(c).values()) == [1, 2]
            assert "3 attempts were made" in caught.value.__notes__[0]

    run(main())


@pytest.mark.parametrize(
    ("code", "kind"), [(13, MessageIllegal), (29, InvalidParameter), (2, SystemBusy), (215, PocketMQError)]
)
def test_any_other_refusal_and_flow_control_is_raised_at_once(code: int, kind: type[PocketMQError]) -> None:
    async def main() -> None:
        async with cluster("broker-a", "broker-b") as c, c.producer() as producer:
            refuse_everywhere(c, code)

            with pytest.raises(kind):
                await producer.send("T", b"x")

            assert sum(sent_to(c).values()) == 1

    run(main())


def test_a_second_attempt_that_succeeds_is_a_success_with_the_same_id() -> None:
    async def main() -> None:
        async with cluster("broker-a", "broker-b") as c, c.producer() as producer:
            for broker in c.brokers.values():
                broker.script(SEND, refuse(14))
            c.brokers["broker-b"].scripts.clear()

            results = [await producer.send("T", b"x") for _ in range(8)]

            assert all(result.is_ok for result in results)
            ids = [
                command.ext["i"].split("\x01")[1][:32] for b in c.brokers.values() for command in b.sends if command.ext
            ]
            assert sorted(set(ids)) == sorted(result.message_id for result in results)
            assert len(ids) == 9

    run(main())


@pytest.mark.parametrize(("retries", "attempts"), [(0, 1), (1, 2), (5, 6)])
def test_the_number_of_attempts_is_a_setting(retries: int, attempts: int) -> None:
    async def main() -> None:
        async with cluster("broker-a", "broker-b") as c, c.producer(retries=retries) as producer:
            refuse_everywhere(c, 14)

            with pytest.raises(RemoteError):
                await producer.send("T", b"x")

            assert sum(sent_to(c).values()) == attempts

    run(main())


def test_with_retry_when_busy_a_send_is_retried_after_the_requested_time() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(retry_when_busy=True) as producer:
            await producer.send("T", b"warm")
            remark = "[REJECTREQUEST]system busy, start flow control for a while, cause: disk, retry after: 500ms"
            c.broker.script(SEND, refuse(2, remark), refuse(2, remark))

            result = await producer.send("T", b"x")

            times = c.broker.times(SEND)[1:]
            waits = [later - earlier for earlier, later in itertools.pairwise(times)]
            assert result.is_ok
            assert len(waits) == 2
            assert all(0.5 <= wait < 0.76 for wait in waits)

    run(main())


def test_a_busy_broker_that_requests_too_much_time_is_an_error_at_once() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(retry_when_busy=True, send_timeout_ms=1000) as producer:
            refuse_everywhere(c, 2, "busy, retry after: 5000ms")
            started = asyncio.get_running_loop().time()

            with pytest.raises(SystemBusy):
                await producer.send("T", b"x")

            assert asyncio.get_running_loop().time() - started < 0.1

    run(main())


def test_a_lost_connection_and_an_unreachable_broker_cause_a_send_to_another() -> None:
    async def main() -> None:
        async with cluster("broker-a", "broker-b") as c, c.producer() as producer:
            await asyncio.gather(*(producer.send("T", b"x") for _ in range(8)))
            c.brokers["broker-a"].close()

            results = [await producer.send("T", b"y") for _ in range(8)]

            assert {result.queue.broker_name for result in results} == {"broker-b"}

    run(main())


def test_losing_the_connection_during_the_wait_for_the_answer_causes_another_attempt() -> None:
    async def main() -> None:
        async with cluster("broker-a", "broker-b") as c, c.producer() as producer:
            await asyncio.gather(*(producer.send("T", b"x") for _ in range(8)))
            c.brokers["broker-a"].answers[SEND] = ignore
            sends = [asyncio.create_task(producer.send("T", b"y")) for _ in range(8)]
            await asyncio.sleep(0.1)

            c.network.cut(c.brokers["broker-a"].address)

            assert {(await send).queue.broker_name for send in sends} == {"broker-b"}

    run(main())


def test_all_attempts_share_the_timeout() -> None:
    async def main() -> None:
        async with cluster("broker-a", "broker-b") as c, c.producer(send_timeout_ms=1000) as producer:
            await producer.send("T", b"warm")
            for broker in c.brokers.values():
                broker.answers[SEND] = after(0.6, refuse(14))
            started = asyncio.get_running_loop().time()

            with pytest.raises(PocketMQError) as caught:
                await producer.send("T", b"x")

            assert isinstance(caught.value, CallTimedOut)
            assert asyncio.get_running_loop().time() - started == pytest.approx(1.0, abs=0.01)

    run(main())


def test_one_send_can_have_its_own_timeout() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            c.broker.answers[SEND] = ignore
            started = asyncio.get_running_loop().time()

            with pytest.raises(CallTimedOut, match=r"no response to request 310 within 0.196 s"):
                await producer.send("T", b"x", queue=QUEUE, timeout_s=0.2)

            assert asyncio.get_running_loop().time() - started < 0.3

    run(main())


@pytest.mark.parametrize("destination", [{"queue": QUEUE}, {"selector": lambda q, m, k: q[1]}, {"sharding_key": "a"}])
def test_a_chosen_queue_is_kept_for_retries(destination: dict[str, Any]) -> None:
    async def main() -> None:
        async with cluster("broker-a", "broker-b") as c, c.producer() as producer:
            refuse_everywhere(c, 14)

            with pytest.raises(RemoteError):
                await producer.send("T", b"x", **destination)

            assert sum(sent_to(c).values()) == 1

    run(main())


STATUSES = [
    (10, SendStatus.FLUSH_DISK_TIMEOUT),
    (11, SendStatus.SLAVE_NOT_AVAILABLE),
    (12, SendStatus.FLUSH_SLAVE_TIMEOUT),
]


@pytest.mark.parametrize(("code", "status"), STATUSES)
def test_stored_but_not_safely_is_a_result_not_an_error(code: int, status: SendStatus) -> None:
    async def main() -> None:
        async with cluster("broker-a", "broker-b") as c, c.producer() as producer:
            for broker in c.brokers.values():
                broker.answers[SEND] = lambda command, broker=broker: broker.store(command, code)  # type: ignore[misc]

            result = await producer.send("T", b"x")

            assert (result.status, result.is_ok, sum(sent_to(c).values())) == (status, False, 1)

    run(main())


def test_codes_have_names() -> None:
    assert [SendStatus(ResponseCode(code).name) for code, _ in STATUSES] == [status for _, status in STATUSES]


def test_with_retry_when_not_stored_a_send_is_retried_on_another_broker() -> None:
    async def main() -> None:
        async with cluster("broker-a", "broker-b") as c, c.producer(retry_when_not_stored=True) as producer:
            bad, good = c.brokers.values()
            bad.answers[SEND] = lambda command: bad.store(command, 10)

            results = [await producer.send("T", b"x") for _ in range(8)]

            assert {result.queue.broker_name for result in results} == {good.name}
            assert bad.sends

            good.answers[SEND] = lambda command: good.store(command, 10)
            assert (await producer.send("T", b"x")).status is SendStatus.FLUSH_DISK_TIMEOUT, "the last word counts"

    run(main())


def test_slow_brokers_are_avoided_with_the_option() -> None:
    async def main() -> None:
        async with cluster("broker-a", "broker-b") as c, c.producer(avoid_slow_brokers=True) as producer:
            slow = c.brokers["broker-a"]
            slow.answers[SEND] = after(0.6, slow.store)
            for _ in range(8):
                await producer.send("T", b"x")
            assert len(slow.sends) == 1, "it took more than 550 ms, so it is avoided for 2 s"

            await asyncio.sleep(2)
            for _ in range(8):
                await producer.send("T", b"x")
            assert len(slow.sends) == 2

    run(main())


def test_an_unreachable_broker_is_avoided_until_a_probe_succeeds() -> None:
    async def main() -> None:
        async with cluster("broker-a", "broker-b") as c, c.producer(avoid_slow_brokers=True) as producer:
            dead = c.brokers["broker-a"]
            for _ in range(8):
                await producer.send("T", b"x")
            dead.close()
            for _ in range(8):
                assert (await producer.send("T", b"y")).queue.broker_name == "broker-b"

            await dead.start()
            await asyncio.sleep(15)
            names = {(await producer.send("T", b"z")).queue.broker_name for _ in range(8)}
            assert names == {"broker-a", "broker-b"}

    run(main())


def test_hooks_run_for_every_attempt() -> None:
    events: list[tuple[str, SendEvent]] = []

    class Watching(Hooks):
        def before_send(self, event: SendEvent) -> None:
            events.append(("before", event))

        def after_send(self, event: SendEvent) -> None:
            events.append(("after", event))
            raise ValueError("a hook that fails does no harm")

    async def main() -> None:
        async with cluster("broker-a", "broker-b") as c, c.producer(hooks=[Watching()], group="PG") as producer:
            for broker in c.brokers.values():
                broker.answers[SEND] = after(0.25, broker.store)
                broker.script(SEND, refuse(14))
            result = await producer.send(Message("T", b"hello"))
            assert [what for what, _ in events] == ["before", "after"] * 3

            last = events[-1][1]
            assert (last.result, last.error, last.group) == (result, None, "PG")
            assert last.message_ids == [result.message_id]
            assert last.cost_ms == pytest.approx(252, abs=1)
            assert isinstance(events[1][1].error, RemoteError)

            await producer.send_one_way("T", b"x")
            assert (events[-1][1].result, events[-1][1].error) == (None, None)

    run(main())


@pytest.mark.parametrize(("version", "knows"), [(407, False), (412, False), (413, True), (479, True)])
@pytest.mark.parametrize("options", [{"delay_ms": 5_000}, {"deliver_at_ms": 1_800_000_000_000}])
def test_a_timed_message_is_refused_for_a_broker_without_timers(
    version: int, knows: bool, options: dict[str, int]
) -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            c.broker.version = version
            for _ in range(2):
                if knows:
                    assert (await producer.send("T", b"x", **options)).is_ok  # type: ignore[arg-type]
                else:
                    with pytest.raises(InvalidMessage, match=r"older than RocketMQ 5.0 .* use delay_level instead"):
                        await producer.send("T", b"x", **options)  # type: ignore[arg-type]
            assert (await producer.send("T", b"x", delay_level=3)).is_ok

    run(main())
