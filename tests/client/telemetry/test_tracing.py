"""Tracing: which records are sent, when, and what happens if they cannot be sent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.client.kit import CLIENT_IP, NAME_SERVER, Cluster, cluster, properties_of, refuse, until

from pocketmq.client.hooks import ConsumeEvent
from pocketmq.client.settings import ClientSettings
from pocketmq.client.telemetry.tracing import Traced, Tracer
from pocketmq.codes import RequestCode
from pocketmq.model.message import Message, StoredMessage
from pocketmq.model.names import TRACE_TOPIC
from pocketmq.model.properties import format_properties
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.command import Command
from pocketmq.protocol.record import decode_record, encode_record
from pocketmq.protocol.trace_text import (
    Decision,
    EndTransaction,
    Outcome,
    Pub,
    SubAfter,
    SubBefore,
    Trace,
    TracedType,
    decode_trace,
)
from pocketmq.testing import run

HOST = bytes([10, 0, 0, 2, 0, 0, 42, 159])


def traces(c: Cluster) -> list[Command]:
    return [command for command in c.broker.sends if (command.ext or {})["b"] == TRACE_TOPIC]


def records(c: Cluster) -> list[Trace]:
    return [record for command in traces(c) for record in decode_trace(command.body)]


@asynccontextmanager
async def traced(**options: object) -> AsyncIterator[Cluster]:
    async with cluster(topics=("T", TRACE_TOPIC)) as c:
        yield c


def test_a_send_is_traced_within_5_s_by_a_client_of_its_own() -> None:
    async def main() -> None:
        async with traced() as c, c.producer(group="PG", trace=True) as producer:
            result = await producer.send("T", b"hello", tags="A", keys=["k1", "k2"])
            await until(lambda: traces(c))

            (trace,) = records(c)
            assert isinstance(trace, Pub)
            assert (trace.message_id, trace.offset_id) == (result.message_id, result.offset_id)
            assert (trace.group, trace.topic, trace.tags, trace.keys) == ("PG", "T", "A", "k1 k2")
            assert (trace.store_host, trace.region, trace.success) == ("10.0.0.2:10911", "DefaultRegion", True)
            assert trace.message_type is TracedType.NORMAL
            assert asyncio.get_running_loop().time() == pytest.approx(5.5, abs=0.6)
            assert properties_of(traces(c)[0])["KEYS"].split() == [result.message_id, "k1", "k2"]
            ids = {heartbeat.client_id for heartbeat in c.broker.heartbeats}
            assert any("PID_CLIENT_INNER_TRACE_PRODUCER_" in client_id for client_id in ids)
            assert len(ids) == 2

    run(main())


def test_twenty_sends_do_not_wait() -> None:
    async def main() -> None:
        async with traced() as c, c.producer(group="PG", trace=True) as producer:
            for _ in range(25):
                await producer.send("T", b"x")
            await until(lambda: traces(c))
            assert asyncio.get_running_loop().time() < 1
            assert len(records(c)) == 20

    run(main())


def test_stopping_sends_the_traces_that_wait() -> None:
    async def main() -> None:
        async with traced() as c:
            async with c.producer(group="PG", trace=True) as producer:
                await producer.send_many([Message("T", b"%d" % n) for n in range(3)])
            found = records(c)

            assert [type(record) for record in found] == [Pub, Pub, Pub]
            assert len({record.message_id for record in found if isinstance(record, Pub)}) == 3
            await until(lambda: not c.network.connections)

    run(main())


def test_failed_sends_and_brokers_without_tracing_are_not_traced() -> None:
    async def main() -> None:
        async with traced() as c, c.producer(group="PG", trace=True) as producer:

            def untraced(command: Command) -> Command:
                answer = c.broker.store(command)
                assert answer.ext is not None
                answer.ext["TRACE_ON"] = "false"
                return answer

            c.broker.script(RequestCode.SEND_MESSAGE_V2, untraced, refuse(13))
            await producer.send("T", b"x")
            with pytest.raises(Exception, match="ILLEGAL"):
                await producer.send("T", b"x")
            await asyncio.sleep(20)

            assert not traces(c)

    run(main())


def test_transactions_and_delays_are_traced_with_their_type() -> None:
    async def main() -> None:
        async with traced() as c:
            async with c.producer(group="PG", trace=True, check=lambda message: None) as producer:
                await producer.send("T", b"x", delay_level=2)
                async with producer.transaction("T") as tx:
                    half = await tx.send(b"y", keys="k")
            pubs = [record for record in records(c) if isinstance(record, Pub)]
            (end,) = (record for record in records(c) if isinstance(record, EndTransaction))

            assert [pub.message_type for pub in pubs] == [TracedType.DELAYED, TracedType.HALF]
            assert (end.message_id, end.decision, end.from_check, end.keys) == (
                half.message_id,
                Decision.COMMIT,
                False,
                "k",
            )

    run(main())


def test_messages_are_sent_while_traces_cannot_be_sent(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(group="PG", trace=True, max_waiting_traces=5) as producer:
            for _ in range(40):
                assert (await producer.send("T", b"x")).is_ok
                await asyncio.sleep(0.5)

    run(main())
    assert sum("Sending message traces failed; they are dropped" in record.message for record in caplog.records) == 1


def stored(number: int, **properties: str) -> StoredMessage:
    text = format_properties({"UNIQ_KEY": f"{number:032}", "KEYS": f"k{number}", "MSG_REGION": "R", **properties})
    return decode_record(encode_record(b"T", 1, number, number, b"x", text.encode(), 0, 0, 1, HOST, 2, HOST, 3))


def test_consumption_is_traced_before_and_after() -> None:
    async def main() -> None:
        async with traced() as c:
            settings = ClientSettings(name_servers=NAME_SERVER, client_ip=CLIENT_IP)
            tracer = Tracer(settings, "CG", Traced.CONSUMPTION, c.dependencies)
            tracer.start()
            messages = [stored(1), stored(2), stored(3, TRACE_ON="false")]
            event = ConsumeEvent(group="CG", messages=messages, queue=MessageQueue("T", "broker-a", 1), started_ms=1000)
            tracer.before_consume(event)
            event.cost_ms, event.outcome = 30.0, Outcome.FAILED
            tracer.after_consume(event)
            await tracer.stop()
            await tracer.stop()

            before = [record for record in records(c) if isinstance(record, SubBefore)]
            after = [record for record in records(c) if isinstance(record, SubAfter)]
            assert [(r.message_id, r.retry_times, r.keys, r.region) for r in before] == [
                (f"{1:032}", 3, "k1", "R"),
                (f"{2:032}", 3, "k2", "R"),
            ]
            assert [(r.cost_ms, r.success, r.outcome, r.group) for r in after] == [
                (15, False, Outcome.FAILED, "CG")
            ] * 2
            assert {r.request_id for r in before} == {r.request_id for r in after}
            assert (traces(c)[0].ext or {})["a"].startswith("_INNER_TRACE_PRODUCER-CG-CONSUME-")
            assert tracer.dropped == 0

    run(main())
