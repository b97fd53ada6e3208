"""The fields of a transaction message at each step."""

import pytest
from tests.broker.transactions.kit import COMMIT, GROUP, ROLLBACK, UNKNOWN, Lab
from tests.golden import Captured, captured, needs_golden
from tests.store.kit import HOST

from pocketmq.broker.messages import Draft, StoredPosition
from pocketmq.broker.transactions.half import as_half, check_request, committed, given_up, renewed, resumed
from pocketmq.codes import RequestCode
from pocketmq.errors import ImpossibleRequest, InvalidMessage
from pocketmq.model.message import StoredMessage
from pocketmq.model.message_id import offset_id
from pocketmq.model.properties import MAX_BYTES, format_properties, parse_properties
from pocketmq.protocol.api.messages import EndTransaction, SendMessageV2
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.protocol.record import decode_record, decode_records

ADDED = {
    "5.3.3": {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster"},
    "4.9.7": {"CLUSTER": "DefaultCluster"},
}
"""What the broker of that version adds to every message."""


def made(**properties: str) -> Draft:
    return Draft(
        topic="T",
        queue_id=3,
        body=b"body",
        properties={"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": "KEY", **properties},
        born_ms=1,
        born_host=HOST,
        flag=7,
        sys_flag=4 | 0x301,
    )


def stored_half(**properties: str) -> StoredMessage:
    lab = Lab.new()
    return lab.message(lab.appender.append(as_half(made(**properties))))


def test_a_half_message_names_its_destination() -> None:
    draft = as_half(made())

    assert (draft.topic, draft.queue_id) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0)
    assert draft.sys_flag == 0x301
    assert draft.properties == {
        "TRAN_MSG": "true",
        "PGROUP": GROUP,
        "UNIQ_KEY": "KEY",
        "REAL_TOPIC": "T",
        "REAL_QID": "3",
        "__transactionId__": "KEY",
    }


def test_transaction_properties_of_the_broker_are_not_accepted_from_a_client() -> None:
    draft = as_half(made(TRANSACTION_CHECK_TIMES="99", TRAN_PREPARED_QUEUE_OFFSET="0", REAL_TOPIC="Other"))

    assert "TRANSACTION_CHECK_TIMES" not in draft.properties
    assert "TRAN_PREPARED_QUEUE_OFFSET" not in draft.properties
    assert draft.properties["REAL_TOPIC"] == "T"


def test_a_transaction_without_a_producer_group_is_refused() -> None:
    draft = made()
    del draft.properties["PGROUP"]

    with pytest.raises(InvalidMessage, match="PGROUP"):
        as_half(draft)


@pytest.mark.parametrize(("spare", "fits"), [(128, True), (127, False)])
def test_properties_must_have_space_for_later_additions(spare: int, fits: bool) -> None:
    base = len(format_properties(as_half(made(x="y")).properties))
    draft = made(x="y" * (MAX_BYTES - base - spare + 1))

    if fits:
        longest = renewed(stored_half(x=draft.properties["x"]), is_check=True)
        longest.properties["TRAN_PREPARED_QUEUE_OFFSET"] = str(2**63 - 1)
        assert len(longest.packed_properties()) <= MAX_BYTES
    else:
        with pytest.raises(InvalidMessage, match="at most 32639"):
            as_half(draft)


def test_a_committed_message_equals_the_sent_one() -> None:
    half = stored_half()

    draft = committed(half)

    assert (draft.topic, draft.queue_id, draft.body, draft.flag) == ("T", 3, b"body", 7)
    assert draft.sys_flag == 0x309
    assert draft.prepared_offset == half.log_offset
    assert draft.properties == half.properties


def test_copies_count_the_checks_and_remember_the_first_copy() -> None:
    half = stored_half()

    assert renewed(half, is_check=True).properties == half.properties | {
        "TRANSACTION_CHECK_TIMES": "1",
        "TRAN_PREPARED_QUEUE_OFFSET": "0",
    }
    assert "TRANSACTION_CHECK_TIMES" not in renewed(half, is_check=False).properties


def test_the_link_between_copies_is_never_delivered() -> None:
    lab = Lab.new()
    lab.send()
    (place,) = lab.check()
    copy = lab.message(place)
    assert copy.properties["TRAN_PREPARED_QUEUE_OFFSET"] == "0"

    asked = decode_record(check_request(copy, place, "broker-a").body)

    for properties in (committed(copy).properties, given_up(copy).properties, asked.properties):
        assert "TRAN_PREPARED_QUEUE_OFFSET" not in properties


def test_a_resumed_transaction_restarts_its_checks() -> None:
    half = stored_half(TRANSACTION_CHECK_TIMES="15")

    assert given_up(half).topic == "TRANS_CHECK_MAX_TIME_TOPIC"
    assert resumed(half).topic == "RMQ_SYS_TRANS_HALF_TOPIC"
    assert resumed(half).properties["TRANSACTION_CHECK_TIMES"] == "0"


def test_a_half_message_without_destination_cannot_be_committed() -> None:
    lab = Lab.new()
    draft = as_half(lab.draft())
    del draft.properties["REAL_QID"]
    place = lab.appender.append(draft)

    with pytest.raises(ImpossibleRequest, match="no destination queue"):
        lab.end(place)


# the captured conversations


def frames(version: str) -> list[Captured]:
    return [frame for frame in captured(f"wire/{version}/json/transaction.jsonl") if frame.link == "broker"]


def sent_halves(version: str) -> list[SendMessageV2]:
    commands = [frame.command for frame in frames(version) if frame.forward and not frame.answers]
    sends = [SendMessageV2.decode(c.ext) for c in commands if c.code == RequestCode.SEND_MESSAGE_V2]
    return [send for send in sends if "TRAN_MSG" in (send.properties or "")]


def replayed(version: str) -> tuple[Lab, dict[str, StoredPosition]]:
    """The half messages of a conversation, sent to us; their offsets by their unique keys."""
    lab = Lab.new()
    lab.topics.put([TopicConfig("TransactionTopic", 2, 2)], 0)
    lab.connected = {"PG_transaction"}
    places = {}
    for send in sent_halves(version):
        properties = parse_properties(send.properties or "") | ADDED[version]
        draft = Draft(
            topic=send.topic,
            queue_id=send.queue_id,
            body=f"transaction {properties['KEYS']}".encode(),
            properties=properties,
            born_ms=send.born_timestamp,
            born_host=HOST,
            flag=send.flag,
            sys_flag=send.sys_flag,
        )
        places[properties["UNIQ_KEY"]] = lab.appender.append(as_half(draft))
    return lab, places


def assert_alike(ours: StoredMessage, theirs: StoredMessage, version: str) -> None:
    """Two brokers stored a message in the same way, except for offsets and times."""
    for name in ("topic", "queue_id", "flag", "sys_flag", "born_ms", "body", "reconsume_times", "body_crc"):
        assert getattr(ours, name) == getattr(theirs, name), name
    expected = dict(theirs.properties)
    if version == "4.9.7":
        expected["__transactionId__"] = expected["UNIQ_KEY"]
    assert ours.properties == expected


@needs_golden
@pytest.mark.parametrize("version", ["5.3.3", "4.9.7"])
def test_checks_and_deliveries_match_apache(version: str) -> None:
    lab, places = replayed(version)
    first, then = decisions(version)[:4], decisions(version)[4:]
    for decision in first:
        lab.end(places[decision.msg_id], decision.commit_or_rollback, group=decision.producer_group)

    copies = lab.check()
    for decision, (_, theirs), copy in zip(then, asked(version), copies, strict=True):
        assert lab.message(copy).message_id == decision.msg_id == theirs.message_id
        lab.end(copy, decision.commit_or_rollback, group=decision.producer_group, check=True)
        places[decision.msg_id] = copy

    assert [d.commit_or_rollback for d in (*first, *then)] == [COMMIT, ROLLBACK, UNKNOWN, UNKNOWN, COMMIT, ROLLBACK]
    delivered = [message for queue in (0, 1) for message in lab.messages("TransactionTopic", queue)]
    assert {message.message_id for message in delivered} == consumed(version).keys()
    for message in delivered:
        assert_alike(message, consumed(version)[message.message_id], version)
        assert message.prepared_offset == places[message.message_id].log_offset


@needs_golden
@pytest.mark.parametrize("version", ["5.3.3", "4.9.7"])
def test_a_check_has_the_fields_of_apache_and_the_final_message(version: str) -> None:
    lab, places = replayed(version)

    for theirs, message in asked(version):
        half = lab.message(places[message.message_id])
        ours = check_request(half, StoredPosition(0, message.queue_offset, message.log_offset), "broker-a")

        missing = {"topic": "RMQ_SYS_TRANS_HALF_TOPIC", "bname": "broker-a"} if version == "4.9.7" else {}
        assert ours.ext == theirs | missing | {"offsetMsgId": offset_id(HOST, message.log_offset)}
        assert_alike(decode_record(ours.body), message, version)
        assert decode_record(ours.body).queue_offset == message.queue_offset
        assert decode_record(ours.body).log_offset == message.log_offset


def decisions(version: str) -> list[EndTransaction]:
    commands = [frame.command for frame in frames(version) if frame.forward]
    return [EndTransaction.decode(c.ext) for c in commands if c.code == RequestCode.END_TRANSACTION]


def asked(version: str) -> list[tuple[dict[str, str], StoredMessage]]:
    commands = [frame.command for frame in frames(version) if not frame.forward]
    return [(c.ext or {}, decode_record(c.body)) for c in commands if c.code == RequestCode.CHECK_TRANSACTION_STATE]


def consumed(version: str) -> dict[str, StoredMessage]:
    """The committed messages that the consumer got, by their unique keys."""
    answers = [frame.command for frame in frames(version) if frame.answers == RequestCode.PULL_MESSAGE]
    messages = [message for answer in answers if not answer.code for message in decode_records(answer.body)]
    return {message.message_id: message for message in messages if "TRAN_MSG" in message.properties}
