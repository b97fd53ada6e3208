"""The requests of our producer, compared with those of Java's for the same calls: equal field by field.

What no two runs share is taken out first: numbers of requests, times, ids, and which queue's turn it was. The cluster in
memory has what the recorded one had: one broker, `broker-a`, that makes topics by itself.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.client.kit import SENDS, Cluster, cluster, properties_of, until
from tests.golden import captured, needs_golden

from pocketmq.client.producer.producer import AsyncProducer
from pocketmq.codes import Language, RequestCode, TransactionState
from pocketmq.model.message import Message
from pocketmq.model.message_id import RecallHandle
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.batch import decode_batch
from pocketmq.protocol.command import ONEWAY, Command
from pocketmq.protocol.compression import decompress
from pocketmq.protocol.record import decode_record
from pocketmq.protocol.signing import Credentials, verify
from pocketmq.protocol.trace_text import Pub, decode_trace
from pocketmq.testing import run

pytestmark = needs_golden

VOLATILE_PROPERTIES = {"UNIQ_KEY", "CORRELATION_ID", "REPLY_TO_CLIENT"}
CLIENT = "127.0.0.1"


def java(name: str, *codes: int, conversation: str = "5.3.3/json") -> list[Command]:
    """The Java client's requests with these codes, to brokers and name servers."""
    found = captured(f"wire/{conversation}/{name}.jsonl")
    commands = [each.command for each in found if each.forward and each.link in ("broker", "namesrv")]
    return [command for command in commands if not command.is_response and command.code in (codes or SENDS)]


def fields(command: Command, *, queue: bool = False) -> dict[str, Any]:
    """What must be equal of a send."""
    ext = dict(command.ext or {})
    assert abs(int(ext.pop("g"))) > 10**12, "born at some time"
    if not queue:
        assert int(ext.pop("e")) >= 0
    properties = properties_of(command)
    ext.pop("i")
    for name in VOLATILE_PROPERTIES & properties.keys():
        properties[name] = f"<{len(properties[name])} characters>" if name != "REPLY_TO_CLIENT" else "<a client id>"
    assert (command.version, command.language in (Language.JAVA, Language.PYTHON)) == (479, True)
    return {"code": command.code, "flag": command.flag, "ext": ext, "properties": properties}


@asynccontextmanager
async def as_recorded(group: str, queues: int = 2, **options: Any) -> AsyncIterator[tuple[Cluster, AsyncProducer]]:
    async with cluster(topics=()) as c:
        c.add_topic("TBW102", queues=8, perm=7)
        async with c.producer(group=group, new_topic_queues=queues, client_ip=CLIENT, **options) as producer:
            yield c, producer


def test_every_method_of_sending_one_message_matches_java() -> None:
    theirs = java("send")
    noise = decompress(theirs[-1].body, 0x301)

    async def main() -> list[Command]:
        async with as_recorded("PG_send") as (c, producer):
            await producer.send("SendTopic", b"plain")
            await producer.send("SendTopic", b"tag and key", tags="TagA", keys="key1")
            rich = Message(
                "SendTopic",
                "flag, two keys, properties, 中文".encode(),
                tags="TagB",
                keys=["key2", "key3"],
                flag=7,
                properties={"colour": "red", "count": "12", "text": "中文 ü"},
            )
            rich.properties["BUYER_ID"] = "buyer-1"
            await producer.send(rich)
            await producer.send("SendTopic", b"wait=false", tags="TagA", keys="key4", wait_stored=False)
            await producer.send("SendTopic", b"selector", tags="TagA", keys="key5", selector=lambda q, m, k: q[1])
            await producer.send("SendTopic", b"explicit queue", queue=MessageQueue("SendTopic", "broker-a", 0))
            await producer.submit("SendTopic", b"async", tags="TagA", keys="key6")
            await producer.send_one_way("SendTopic", b"oneway", tags="TagA", keys="key7")
            await producer.send("SendTopic", b"compress me please " * 400, tags="Big", keys="key8")
            await producer.send("SendTopic", noise, tags="Big", keys="key9")
            await until(lambda: len(c.broker.sends) == len(theirs))
            return c.broker.sends

    ours = run(main())

    assert [fields(command) for command in ours] == [fields(command) for command in theirs]
    assert [command.body for command in ours] == [command.body for command in theirs]
    assert [(ours[at].ext or {})["e"] for at in (4, 5)] == [(theirs[at].ext or {})["e"] for at in (4, 5)]
    assert [command.flag for command in ours].count(ONEWAY) == 1


def test_batches_match_those_of_java_and_have_no_id_of_their_own() -> None:
    theirs = java("batch")

    async def main() -> list[Command]:
        async with as_recorded("PG_batch") as (c, producer):
            three = [
                Message("BatchTopic", b"batch item %d" % n, tags="TagB", keys=f"batch{n}", properties={"n": str(n)})
                for n in range(3)
            ]
            await producer.send_many(three)
            return c.broker.sends

    (ours,) = run(main())

    expected = fields(theirs[0])
    assert expected["properties"].pop("UNIQ_KEY"), "brokers before 5.5 give it to each message, which hides its own"
    assert fields(ours) == expected
    for our_item, their_item in zip(decode_batch(ours.body), decode_batch(theirs[0].body), strict=True):
        assert our_item[:2] == their_item[:2]
        assert _item_properties(our_item[2]) == _item_properties(their_item[2])


def _item_properties(raw: bytes) -> dict[str, str]:
    found = dict(entry.split("\x01") for entry in raw.decode().split("\x02") if entry)
    return {**found, "UNIQ_KEY": str(len(found["UNIQ_KEY"]))}


def test_delayed_messages_match_those_of_java() -> None:
    theirs = java("delay")

    async def main() -> list[Command]:
        async with as_recorded("PG_delay") as (c, producer):
            await producer.send("DelayTopic", b"at once")
            for level in (1, 3):
                body = b"delay level %d" % level
                await producer.send("DelayTopic", body, tags="TagD", keys=f"delay{level}", delay_level=level)
            return c.broker.sends

    ours = run(main())

    assert [fields(command) for command in ours] == [fields(command) for command in theirs]
    assert [command.body for command in ours] == [command.body for command in theirs]


def test_timed_messages_and_their_recall_match_those_of_java() -> None:
    theirs = java("timer")
    (their_recall,) = java("timer", RequestCode.RECALL_MESSAGE)
    handle = (their_recall.ext or {})["recallHandle"]

    async def main() -> tuple[list[Command], Command]:
        async with as_recorded("PG_timer") as (c, producer):
            c.broker.answers[RequestCode.RECALL_MESSAGE] = lambda command: command.reply(
                0, "not set any response code", {"msgId": RecallHandle.parse(handle).unique_id}
            )
            await producer.send("TimerTopic", b"at once")
            for their_message in theirs[1:]:
                properties = properties_of(their_message)
                message = Message(
                    "TimerTopic", their_message.body, tags=properties.get("TAGS"), keys=properties.get("KEYS", "")
                )
                message.properties |= {name: value for name, value in properties.items() if name.startswith("TIMER_")}
                await producer.send(message)
            c.add_topic("TimerTopic", 2)
            assert await producer.recall("TimerTopic", handle) == RecallHandle.parse(handle).unique_id
            (recall,) = c.broker.requests(RequestCode.RECALL_MESSAGE)
            return c.broker.sends, recall

    ours, our_recall = run(main())

    assert [fields(command) for command in ours] == [fields(command) for command in theirs]
    assert (our_recall.ext, our_recall.flag) == (their_recall.ext, their_recall.flag)


def test_transactions_and_answers_to_check_backs_match_those_of_java() -> None:
    theirs = java("transaction")
    their_ends = java("transaction", RequestCode.END_TRANSACTION)
    checks = [each for each in captured("wire/5.3.3/json/transaction.jsonl") if each.command.code == 39]
    states = {"commit": TransactionState.COMMIT, "rollback": TransactionState.ROLLBACK}

    class Listener:
        def execute(self, message: Message, argument: object) -> TransactionState:
            return states.get(message.keys[0], TransactionState.UNKNOWN)

        def check(self, message: Any) -> bool:
            return bool(message.keys == ["later-commit"])

    async def main() -> tuple[list[Command], list[Command]]:
        async with as_recorded("PG_transaction", listener=Listener()) as (c, producer):
            await producer.send("TransactionTopic", b"no transaction")
            for name in ("commit", "rollback", "later-commit", "later-rollback"):
                body = f"transaction {name}".encode()
                await producer.send_in_transaction(Message("TransactionTopic", body, tags="TagX", keys=name))
            for check in checks:
                c.broker.peers[0].oneway(check.command)
            await until(lambda: len(c.broker.requests(RequestCode.END_TRANSACTION)) == 6)
            return c.broker.sends, c.broker.requests(RequestCode.END_TRANSACTION)

    ours, our_ends = run(main())

    assert [fields(command) for command in ours] == [fields(command) for command in theirs]
    own_offsets = ("commitLogOffset", "tranStateTableOffset", "msgId", "transactionId")
    for our_end, their_end in zip(our_ends[:4], their_ends[:4], strict=True):
        our_ext, their_ext = dict(our_end.ext or {}), dict(their_end.ext or {})
        assert all(len(our_ext[name]) > 0 for name in own_offsets)
        for name in own_offsets:
            our_ext[name] = their_ext[name] = ""
        assert (our_ext, our_end.flag) == (their_ext, their_end.flag)
    assert sorted(map(str, (end.ext for end in map(_ordered, our_ends[4:])))) == sorted(
        map(str, (end.ext for end in map(_ordered, their_ends[4:])))
    )
    assert decode_record(checks[0].command.body).topic == "TransactionTopic"


def _ordered(command: Command) -> Command:
    command.ext = dict(sorted((command.ext or {}).items()))
    return command


def test_requests_and_replies_match_those_of_java() -> None:
    asked, unheard = (each for each in java("requestReply") if (each.ext or {})["a"] == "PG_asker")
    (their_reply,) = java("requestReply", RequestCode.SEND_REPLY_MESSAGE_V2)
    (pushed,) = (e for e in captured("wire/5.3.3/json/requestReply.jsonl") if e.command.code == 326 and not e.forward)

    async def main() -> tuple[list[Command], list[Command]]:
        async with (
            cluster(topics=("RequestTopic", "DefaultCluster_REPLY_TOPIC")) as c,
            c.producer(group="PG_asker", new_topic_queues=2, client_ip=CLIENT) as asker,
            c.producer(group="PG_replier", new_topic_queues=2, client_ip=CLIENT, instance_name="r") as replier,
        ):
            queue = MessageQueue("RequestTopic", "broker-a", 0)
            asking = asyncio.create_task(
                asker.request("RequestTopic", b"the question", tags="Ask", keys="q", queue=queue, timeout_s=4)
            )
            await until(lambda: c.broker.sends)
            push = pushed.command
            assert push.ext is not None
            properties = properties_of(c.broker.sends[0])
            theirs = properties_of(Command(0, {"i": push.ext["properties"]}))["CORRELATION_ID"]
            push.ext["properties"] = push.ext["properties"].replace(theirs, properties["CORRELATION_ID"])
            answer = await c.broker.peers[0].call(push)
            reply = await asking
            assert (answer.code, reply.body, reply.topic) == (0, b"the answer", "DefaultCluster_REPLY_TOPIC")

            with pytest.raises(TimeoutError, match="no reply arrived"):
                await asker.request(
                    "RequestTopic", b"no reply to this", tags="Unheard", keys="q", queue=queue, timeout_s=4
                )
            request = reply
            request.properties["CLUSTER"] = "DefaultCluster"
            await replier.reply(request, b"the answer")
            return c.broker.requests(310), c.broker.requests(325)

    ours, our_replies = run(main())

    assert [fields(each, queue=True) for each in ours] == [fields(asked, queue=True), fields(unheard, queue=True)]
    assert [each.body for each in ours] == [asked.body, unheard.body]
    assert [fields(each) for each in our_replies] == [fields(their_reply)]


def test_names_with_a_namespace_match_those_of_java() -> None:
    (theirs,) = java("namespace")

    async def main() -> tuple[list[Command], str]:
        async with as_recorded("PG_ns", 1, namespace="MQ_INST_1") as (c, producer):
            result = await producer.send("NamespaceTopic", b"in a namespace", tags="TagA", keys="ns")
            return c.broker.sends, result.queue.topic

    (ours,), topic = run(main())

    assert fields(ours) == fields(theirs)
    assert topic == "NamespaceTopic"


def test_traces_match_those_of_java() -> None:
    theirs = next(each for each in java("trace") if (each.ext or {})["b"] == "RMQ_SYS_TRACE_TOPIC")

    async def main() -> Command:
        async with as_recorded("PG_trace", 1, trace=True) as (c, producer):
            c.add_topic("RMQ_SYS_TRACE_TOPIC", 1)
            await producer.send("TraceTopic", b"traced", tags="TagA", keys="trace1")
            await producer.send("TraceTopic", b"traced too", tags="TagA", keys="trace2")
            await until(lambda: len(c.broker.sends) == 3)
            return c.broker.sends[2]

    ours = run(main())

    assert _without_own(fields(ours)) == _without_own(fields(theirs))
    for our_record, their_record in zip(decode_trace(ours.body), decode_trace(theirs.body), strict=True):
        assert isinstance(our_record, Pub)
        assert isinstance(their_record, Pub)
        same = ("region", "group", "topic", "tags", "keys", "body_bytes", "message_type", "success")
        assert [getattr(our_record, name) for name in same] == [getattr(their_record, name) for name in same]


def _without_own(found: dict[str, Any]) -> dict[str, Any]:
    assert found["ext"]["a"].startswith("_INNER_TRACE_PRODUCER-PG_trace-PRODUCE-")
    words = [word for word in found["properties"]["KEYS"].split() if len(word) != 32]
    return {**found, "ext": {**found["ext"], "a": ""}, "properties": {**found["properties"], "KEYS": words}}


def test_heartbeats_and_unregistrations_match_those_of_java() -> None:
    their_heartbeat = json.loads(java("send", RequestCode.HEART_BEAT)[0].body)
    their_leaves = java("send", RequestCode.UNREGISTER_CLIENT)

    async def main() -> tuple[Any, list[Command], str]:
        async with as_recorded("PG_send") as (c, producer):
            await producer.send("SendTopic", b"plain")
            client_id = producer.client_id
        return json.loads(c.broker.requests(34)[0].body), c.broker.requests(35), client_id

    our_heartbeat, our_leaves, client_id = run(main())

    for heartbeat in (our_heartbeat, their_heartbeat):
        heartbeat["clientID"] = heartbeat["clientID"].split("@")[0]
        heartbeat["producerDataSet"].sort(key=str)
    assert our_heartbeat == their_heartbeat
    assert [{**(each.ext or {}), "clientID": ""} for each in our_leaves] == [
        {**(each.ext or {}), "clientID": ""} for each in their_leaves
    ]
    assert (our_leaves[0].ext or {})["clientID"] == client_id


def test_name_servers_get_the_requests_of_java() -> None:
    theirs = [each.ext for each in java("send", RequestCode.GET_ROUTEINFO_BY_TOPIC)][:2]

    async def main() -> list[Command]:
        async with as_recorded("PG_send") as (c, producer):
            await producer.send("SendTopic", b"plain")
            return c.name_server.heard

    assert [each.ext for each in run(main())] == theirs


def test_with_credentials_every_request_is_signed() -> None:
    their_send = next(each for each in java("acl", conversation="5.3.3/acl") or java("acl"))

    async def main() -> list[Command]:
        credentials = Credentials("pocketAccess", "pocketSecret12")
        async with as_recorded("PG_acl", 1, credentials=credentials) as (c, producer):
            await producer.send("AclTopic", b"signed", tags="TagA", keys="acl1")
            await producer.send_one_way("AclTopic", b"signed too")
        return [*c.name_server.heard, *c.broker.heard]

    ours = run(main())

    assert all(verify(command.ext or {}, command.body, "pocketSecret12") for command in ours)
    assert {command.code for command in ours} == {105, 34, 310, 35}
    send = next(command for command in ours if command.code == RequestCode.SEND_MESSAGE_V2)
    assert (send.ext or {}).keys() == (their_send.ext or {}).keys()
