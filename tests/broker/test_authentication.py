"""A broker with accounts: signed requests are served, others change nothing, and floods of them have limited
effects.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from tests.access.kit import ADMIN, FILE, USER, put_file, request_of, signed
from tests.broker.replay import Replay, replay
from tests.broker.running import Client, RunningBroker, in_virtual_time, pulling, request, running, sending, settled
from tests.golden import captured, needs_golden

from pocketmq.access.authentication import Cause
from pocketmq.access.settings import AuthenticationSettings
from pocketmq.broker.access import ACCESS
from pocketmq.broker.settings import BrokerSettings, FlowSettings, TransactionSettings
from pocketmq.codes import HeaderEncoding, RequestCode, ResponseCode, TransactionState
from pocketmq.errors import InvalidSetting
from pocketmq.model.message_id import OffsetId
from pocketmq.model.names import HALF_TOPIC
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.api.messages import ConsumeMessageDirectly, EndTransaction, SendMessageBack, ViewMessage
from pocketmq.protocol.bodies.clients import ConsumerData, HeartbeatData, ProducerData
from pocketmq.protocol.bodies.topics import KVTable
from pocketmq.protocol.command import Command, encode_command
from pocketmq.protocol.fields import Fields
from pocketmq.protocol.signing import Credentials
from pocketmq.testing import FaultyFiles, run

REFUSED, DONE = ResponseCode.NO_PERMISSION, ResponseCode.SUCCESS
FORGED = Credentials(USER.access_key, "not the secret")
OTHER = Credentials("other", "the secret of the other")
TEXT = """
[[account]]
access_key = "admin"
secret = "the secret of admin"
admin = true

[[account]]
access_key = "user"
secret = "the secret of user"
topics = { "T*" = ["Pub", "Sub"] }
groups = { "G" = ["Sub", "Update"] }

[[account]]
access_key = "other"
secret = "the secret of the other"
topics = { "Other*" = ["Pub", "Sub", "Get"] }
groups = { "H" = ["Sub", "Update"] }
"""


class SigningClient(Client):
    """A client whose requests are signed, unless it has nothing to sign with."""

    def __init__(self, credentials: Credentials | None = USER) -> None:
        super().__init__()
        self.credentials = credentials

    def made(self, command: Command) -> Command:
        return signed(command, self.credentials) if self.credentials else command

    async def ask(
        self, code: int, header: Fields | None = None, body: bytes = b"", *, binary: bool = False, **ext: str
    ) -> Command:
        return await self.peer.call(self.made(request(code, header, body, binary=binary, **ext)), 600)

    def tell(self, code: int, header: Fields | None = None, body: bytes = b"") -> None:
        self.peer.oneway(self.made(request(code, header, body)))


@asynccontextmanager
async def guarded(text: str = TEXT, **settings: Any) -> AsyncIterator[RunningBroker]:
    """A broker with accounts, and topics T and Other."""
    disk = FaultyFiles()
    settings.setdefault("accounts", put_file(disk, text))
    async with running(disk=disk, **settings) as broker:
        broker.make_topic("T")
        broker.make_topic("Other")
        yield broker


async def connect(
    broker: RunningBroker, credentials: Credentials | None = USER, host: str = "10.1.0.1"
) -> SigningClient:
    client = SigningClient(credentials)
    await broker.network.at(host).connect(lambda: client.peer.connection, broker.broker.address)
    return client


def counts(broker: RunningBroker) -> dict[Cause, int]:
    assert broker.parts.authentication is not None
    return dict(broker.parts.authentication.refusals.counts)


both_encodings = pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])


@both_encodings
@in_virtual_time
async def test_a_signed_client_sends_consumes_and_commits(binary: bool) -> None:
    async with guarded() as broker:
        client = await connect(broker)

        sent = [(await client.send(b"%d" % number, binary=binary)).code for number in range(3)]
        await client.beat("G", Subscription("T"))
        found = await client.ask(RequestCode.PULL_MESSAGE, pulling(), binary=binary)
        committed = await client.commit(3)

        assert sent == [DONE] * 3
        assert found.code == DONE
        assert committed.code == DONE
        assert broker.bodies() == [b"0", b"1", b"2"]
        assert (await client.offset()).ext == {"offset": "3"}
        assert counts(broker) == {}


@pytest.mark.parametrize(
    ("credentials", "why"),
    [
        (None, "username cannot be null."),
        (Credentials("nobody", "a secret of theirs"), "User:nobody is not found."),
        (FORGED, "check signature failed."),
        (OTHER, "User:other has no permission to access Topic:T from 10.1.0.1, no matched policies."),
    ],
)
@both_encodings
@in_virtual_time
async def test_a_client_without_permission_is_refused_changes_nothing_and_keeps_its_connection(
    credentials: Credentials | None, why: str, binary: bool
) -> None:
    async with guarded() as broker:
        client = await connect(broker, credentials)
        before = broker.store.end, broker.parts.state.topics.version

        send = await client.send(binary=binary)
        batch = await client.ask(RequestCode.SEND_BATCH_MESSAGE, sending(batch=True), b"x", binary=binary)
        pull = await client.ask(RequestCode.PULL_MESSAGE, pulling(wait_ms=5_000), binary=binary)
        commit = await client.commit(7)
        client.tell(RequestCode.SEND_MESSAGE_V2, sending(), b"one-way")
        await settled()

        assert [(answer.code, answer.remark) for answer in (send, batch, pull)] == [(REFUSED, why)] * 3
        assert commit.code == REFUSED
        assert client.peer.is_open
        assert client.peer.unmatched == 0
        assert (broker.store.end, broker.parts.state.topics.version) == before
        assert broker.parts.state.offsets.snapshot().offset_table == {}


@pytest.mark.parametrize("encoding", list(HeaderEncoding), ids=lambda encoding: encoding.name)
@in_virtual_time
async def test_every_code_is_refused_unsigned_and_answered_to_an_administrator(encoding: HeaderEncoding) -> None:
    async with guarded() as broker:
        client = await connect(broker)
        for code in ACCESS:
            if code is RequestCode.CONSUME_MESSAGE_DIRECTLY:
                continue  # it would wait for a client
            unsigned = await client.peer.call(request_of(code, encoding), 600)
            allowed = await client.peer.call(signed(request_of(code, encoding), ADMIN), 600)

            assert (code, unsigned.code, unsigned.remark) == (code, REFUSED, "username cannot be null.")
            assert (code, allowed.code) != (code, REFUSED)

        unknown = await client.peer.call(signed(Command(9999, {}), USER), 600)
        assert unknown.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


@in_virtual_time
async def test_a_heartbeat_with_a_forbidden_name_changes_nothing() -> None:
    async with guarded() as broker:
        client = await connect(broker)
        groups = len(broker.parts.state.groups)
        data = [ConsumerData("G", subscription_data_set=(Subscription("T"),)), ConsumerData("H")]

        answer = await client.ask(RequestCode.HEART_BEAT, body=HeartbeatData("c", (), tuple(data)).encode())

        assert (answer.code, (answer.remark or "").split(" from ")[0]) == (
            REFUSED,
            "User:user has no permission to access Group:H",
        )
        assert broker.parts.state.members.group("G") is None
        assert len(broker.parts.state.groups) == groups


@in_virtual_time
async def test_answers_of_clients_need_no_signature() -> None:
    async with guarded() as broker:
        consumer, admin = await connect(broker), await connect(broker, ADMIN)
        await consumer.beat("G", Subscription("T"))

        answer = await admin.ask(
            RequestCode.GET_CONSUMER_RUNNING_INFO, None, consumerGroup="G", clientId="client", jstackEnable="false"
        )

        assert answer.code == DONE
        assert [told.code for told in consumer.told] == [
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
            RequestCode.GET_CONSUMER_RUNNING_INFO,
        ]
        assert all("Signature" not in (told.ext or {}) for told in consumer.told)


# messages that are named by their offset


async def sent_at(client: Client, topic: str) -> OffsetId:
    answer = await client.sent(b"secret", topic=topic)
    return OffsetId.parse((answer.ext or {})["msgId"])


@in_virtual_time
async def test_permission_for_one_topic_does_not_give_access_to_messages_of_another() -> None:
    async with guarded() as broker:
        user, other = await connect(broker), await connect(broker, OTHER)
        hidden = await sent_at(other, "Other")
        own = await sent_at(user, "T")
        await user.beat("G", Subscription("T"))

        looked = await user.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage(hidden.offset, "T"))
        sent_back = await user.ask(
            RequestCode.CONSUMER_SEND_MSG_BACK, SendMessageBack(hidden.offset, "G", 0, origin_topic="T")
        )
        relayed = await user.ask(
            RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectly("G", "client", str(hidden), topic="T")
        )
        allowed = await user.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage(own.offset))

        assert [answer.code for answer in (looked, sent_back, relayed)] == [REFUSED] * 3
        assert all("Topic:Other" in (answer.remark or "") for answer in (looked, sent_back, relayed))
        assert broker.bodies("%RETRY%G") == []
        assert allowed.code == DONE


@in_virtual_time
async def test_a_body_that_looks_like_a_message_gives_no_access() -> None:
    async with guarded() as broker:
        user = await connect(broker)
        own = await sent_at(user, "T")
        inside = broker.store.record(own.offset) or b""
        outer = await user.sent(inside)
        log_offset = OffsetId.parse((outer.ext or {})["msgId"]).offset
        place = (broker.store.record(log_offset) or b"").index(inside) + log_offset

        answer = await user.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage(place))

        assert (answer.code, answer.remark) == (1, f"can not find message by the offset, {place}")


@in_virtual_time
async def test_decisions_and_checks_of_a_transaction_need_permission_to_send_to_its_topic() -> None:
    checks = TransactionSettings(timeout_ms=1_000, check_interval_ms=2_000)
    async with guarded(transaction=checks) as broker:
        user, other = await connect(broker), await connect(broker, OTHER)
        for client in (other, user):
            beat = HeartbeatData(f"client {id(client)}", (ProducerData("PG"),))
            assert (await client.ask(RequestCode.HEART_BEAT, body=beat.encode())).code == DONE
        await user.sent(b"half", properties={"TRAN_MSG": "true", "PGROUP": "PG"})
        [half] = broker.stored(HALF_TOPIC)

        def decision(state: TransactionState) -> EndTransaction:
            return EndTransaction("PG", half.queue_offset, half.log_offset, int(state), half.message_id, HALF_TOPIC)

        refused = await other.ask(RequestCode.END_TRANSACTION, decision(TransactionState.ROLLBACK))
        await asyncio.sleep(10)
        asked = [[told.code for told in client.told] for client in (user, other)]
        done = await user.ask(RequestCode.END_TRANSACTION, decision(TransactionState.COMMIT))

        assert refused.code == REFUSED
        assert set(asked[0]) == {RequestCode.CHECK_TRANSACTION_STATE}
        assert asked[1] == []
        assert done.code == DONE
        assert broker.bodies() == [b"half"]


@in_virtual_time
async def test_a_message_cannot_recall_a_message_of_another_topic() -> None:
    async with guarded() as broker:
        user, other = await connect(broker), await connect(broker, OTHER)
        await other.sent(b"later", topic="Other", properties={"TIMER_DELAY_SEC": "5"}, key="K")

        answer = await user.send(properties={"TIMER_DELAY_SEC": "5", "TIMER_DEL_UNIQKEY": "Other+K"})
        await asyncio.sleep(10)

        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert broker.bodies("Other") == [b"later"]


# floods


@in_virtual_time
async def test_refused_requests_never_wait() -> None:
    flow = FlowSettings(turn_budget_ms=1, send_wait_ms=600_000)
    async with guarded(flow=flow, authentication=AuthenticationSettings(max_failures=10**6)) as broker:
        client = await connect(broker)
        broker.clock.skip_delay_s = 1.0
        forged = signed(request(RequestCode.SEND_MESSAGE_V2, sending(), b"x"), FORGED)
        good = signed(request(RequestCode.SEND_MESSAGE_V2, sending(), b"good"))

        answers = broker.serve_now(client, *[forged] * 64, good)
        waiting = len(broker.turns.waiting)
        broker.clock.skip_delay_s = 0.0
        codes = [(await answer).code for answer in answers]

        assert waiting == 1
        assert codes == [REFUSED] * 64 + [DONE]


@in_virtual_time
async def test_a_flood_of_bad_signatures_closes_only_its_own_connection(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "pocketmq.access")
    async with guarded(authentication=AuthenticationSettings(max_failures=20)) as broker:
        good = await connect(broker, host="10.1.0.9")
        forged = signed(request(RequestCode.SEND_MESSAGE_V2, sending(), bytes(1000)), FORGED)
        lost = 0
        for _ in range(30):
            bad = await connect(broker, host="10.1.0.9")
            for number in range(100):
                bad.peer.connection.write(encode_command(replace(forged, opaque=number)))
            await settled()
            lost += not bad.peer.is_open
            bad.peer.close()

        assert (await good.send()).code == DONE
        assert lost == 30
        assert counts(broker)[Cause.SIGNATURE] == 20 + 30
        assert len(caplog.records) == 1
        assert broker.bodies() == [b"body"]
        info = await good.peer.call(signed(request(RequestCode.GET_BROKER_RUNTIME_INFO), ADMIN))
        told = KVTable.decode(info.body).table
        assert (told["refusedWrongSignature"], told["connectionsClosedByFailures"]) == ("50", "30")


def test_a_bad_signature_costs_little_and_leaves_no_state() -> None:
    async def main() -> float:
        limits = AuthenticationSettings(max_failures=10**6, max_addresses=5)
        async with guarded(authentication=limits) as broker:
            forged = signed(request(RequestCode.SEND_MESSAGE_V2, sending(), bytes(100)), FORGED)
            clients = [await connect(broker, host=f"10.2.0.{number}") for number in range(20)]
            began = time.perf_counter()
            for client in clients:
                for answer in broker.serve_now(client, *[forged] * 500):
                    assert not answer.done()
            took_s = time.perf_counter() - began
            assert broker.parts.authentication is not None
            assert len(broker.parts.authentication.refusals) == 5
            assert counts(broker) == {Cause.SIGNATURE: 10_000}
            return took_s

    assert run(main()) < 10_000 * 0.0005


# without accounts, and settings


@in_virtual_time
async def test_without_accounts_signatures_are_not_checked_and_heads_are_decoded_as_before() -> None:
    async with running() as broker:
        broker.make_topic("T")
        client = await connect(broker, FORGED)

        assert (await client.send()).code == DONE
        assert broker.parts.authentication is None
        assert broker.turns._check is None


@in_virtual_time
async def test_settings_are_reported_without_secrets() -> None:
    own = Credentials("broker", "the secret of the broker")
    async with guarded(credentials=own) as broker:
        admin = await connect(broker, ADMIN)

        told = (await admin.ask(RequestCode.GET_BROKER_CONFIG)).body.decode()
        info = (await admin.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body.decode()

        assert f"accountsFile={FILE}" in told
        assert "authenticationEnabled=true" in told
        assert '"accessKey"' in told.replace("\\", "")
        for secret in ("the secret", "admin", own.secret):
            assert secret not in told.replace("\\", "")
            assert secret not in info


def test_on_addresses_that_others_reach_a_broker_needs_accounts_or_the_option() -> None:
    assert not BrokerSettings(host="10.0.0.1", accounts=FILE).address.is_loopback
    with pytest.raises(InvalidSetting, match="--accounts FILE"):
        BrokerSettings(host="10.0.0.1")


@in_virtual_time
async def test_a_broker_does_not_start_with_an_invalid_file() -> None:
    with pytest.raises(InvalidSetting, match="account 1: access_key must be a text"):
        async with guarded("[[account]]\naccess_key = ''\n"):
            pytest.fail("it started")  # pragma: no cover


# as captured


def held(name: str, *, name_server_too: bool = False) -> Replay:
    """A captured conversation, replayed with a broker that has the account of the real one."""
    account = '[[account]]\naccess_key = "pocketAccess"\nsecret = "pocketSecret12"\nadmin = true\n'

    async def main() -> Replay:
        async with replay(captured(name), accounts=account, name_server_too=name_server_too) as talk:
            await talk.run()
        return talk

    return run(main())


@needs_golden
def test_the_signed_conversation_of_apache_5_3_gets_the_same_answers() -> None:
    talk = held("wire/5.3.3/acl/acl.jsonl")

    others = [one for one in talk.findings if one.name not in ("groupSysFlag", "topicSysFlag")]

    assert "\n".join(map(str, others)) == ""
    assert talk.compared > 30


@needs_golden
def test_requests_that_4_9_refuses_with_1_are_refused_with_16() -> None:
    talk = held("wire/4.9.7/acl/acl.jsonl")

    refused = {
        one.codes for one in talk.findings if "AclException" in str(one.their_command and one.their_command.remark)
    }
    accepted = [one for one in talk.findings if one.codes[0] == DONE and one.codes[1] == REFUSED]

    assert refused == {(1, 16)}
    assert accepted == []


@needs_golden
def test_a_name_server_with_accounts_refuses_what_the_captured_one_accepted() -> None:
    talk = held("wire/5.3.3/acl/acl.jsonl", name_server_too=True)

    refused = {
        (one.asked, one.our_command.remark)
        for one in talk.findings
        if one.our_command and one.our_command.code == REFUSED and one.codes[0] == DONE
    }

    assert refused == {(105, "check signature failed."), (105, "username cannot be null.")}
