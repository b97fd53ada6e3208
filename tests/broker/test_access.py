"""The access table: every served request has a row, and every row is a served request."""

from typing import Any

import msgspec
import pytest
from tests.access.kit import (
    ADMIN,
    ALL_ACTIONS,
    BODIES,
    GROUP,
    TOPIC,
    account,
    account_for,
    authentication,
    request_of,
    signed,
)
from tests.broker.running import in_virtual_time, running

from pocketmq.access.accounts import Action, Resource
from pocketmq.broker.access import ACCESS, by_log_offset
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import ImpossibleRequest, NoPermission, ProtocolError
from pocketmq.model.message import StoredMessage
from pocketmq.model.message_id import Host, OffsetId, pack_ip
from pocketmq.model.names import HALF_TOPIC
from pocketmq.model.properties import format_properties
from pocketmq.net.peer import Peer
from pocketmq.protocol.api import request_header
from pocketmq.protocol.command import Command
from pocketmq.protocol.record import decode_record, encode_record


@in_virtual_time
async def test_every_request_that_is_served_has_a_row_and_every_row_is_served() -> None:
    async with running() as broker:
        by_handlers = set(broker.parts.dispatcher._handlers)
        hot = (broker.turns._stage.keys() | broker.turns._serve.keys()) - {Command}
        by_turns = {int(head.code) for head in hot}

    assert by_handlers | by_turns == set(map(int, ACCESS))
    assert by_handlers & by_turns == {RequestCode.HEART_BEAT}


every_code = pytest.mark.parametrize("code", sorted(ACCESS), ids=lambda code: code.name)

BY_PLACE = {
    RequestCode.VIEW_MESSAGE_BY_ID,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.END_TRANSACTION,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
}
LISTS = {RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER} | {
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
}


def stored(topic: str = TOPIC, **properties: str) -> StoredMessage:
    record = encode_record(
        topic.encode(), 0, 0, 0, b"body", format_properties(properties).encode(), 0, 0, 0, bytes(8), 0, bytes(8)
    )
    return decode_record(record)


TABLE = by_log_offset(lambda offset: stored() if offset == 0 else None)


@every_code
def test_a_row_names_fields_that_its_request_has(code: RequestCode) -> None:
    fields = request_header(code).__struct_fields__

    assert ACCESS[code]
    assert all(one.named_by in fields for one in ACCESS[code] if isinstance(one.named_by, str))


@every_code
def test_the_permissions_of_a_row_are_sufficient_and_an_administrator_needs_none(code: RequestCode) -> None:
    user = account_for(TABLE[code])
    check = authentication(TABLE, user, account(ADMIN, is_admin=True))

    check.check(Peer(), signed(request_of(code)))
    check.check(Peer(), signed(request_of(code), ADMIN))


@every_code
def test_a_missing_permission_of_a_row_is_refused(code: RequestCode) -> None:
    for missing in TABLE[code]:
        rest = tuple(one for one in TABLE[code] if one is not missing)
        user = account_for(rest)

        with pytest.raises(NoPermission, match="no matched policies"):
            authentication(TABLE, user).check(Peer(), signed(request_of(code)))


@every_code
def test_permissions_for_other_topics_groups_and_clusters_do_not_apply(code: RequestCode) -> None:
    others = {"Other*": ALL_ACTIONS}
    user = account(topics=others, groups=others, clusters=others)

    with pytest.raises(NoPermission):
        authentication(TABLE, user).check(Peer(), signed(request_of(code)))


@every_code
def test_all_permissions_for_topics_and_groups_do_not_make_an_administrator(code: RequestCode) -> None:
    user = account(topics={"*": ALL_ACTIONS}, groups={"*": ALL_ACTIONS})
    is_for_administrators = any(one.resource is Resource.CLUSTER for one in TABLE[code])

    try:
        authentication(TABLE, user).check(Peer(), signed(request_of(code)))
    except NoPermission:
        assert is_for_administrators
    else:
        assert not is_for_administrators


@every_code
def test_unsigned_requests_are_refused_whatever_their_code(code: RequestCode) -> None:
    with pytest.raises(NoPermission, match="username cannot be null"):
        authentication(TABLE, account(is_admin=True)).check(Peer(), request_of(code))


def test_requests_about_no_single_resource_are_listed() -> None:
    about_all = {
        code
        for code, row in TABLE.items()
        for one in row
        if one.named_by is None and one.resource is not Resource.CLUSTER
    }

    assert about_all == LISTS
    assert {code for code in TABLE if TABLE[code] != ACCESS[code]} == BY_PLACE


def test_requests_of_clients_need_permissions_on_topics_and_groups() -> None:
    publishing = {code for code, row in ACCESS.items() if any(one.action is Action.PUB for one in row)}
    consuming = {code for code, row in ACCESS.items() if any(one.action is Action.SUB for one in row)}

    assert {RequestCode.SEND_MESSAGE, RequestCode.SEND_BATCH_MESSAGE, RequestCode.END_TRANSACTION} <= publishing
    assert {RequestCode.PULL_MESSAGE, RequestCode.LOCK_BATCH_MQ, RequestCode.HEART_BEAT} <= consuming
    assert all(one.resource is Resource.TOPIC for code in publishing for one in ACCESS[code])


# a message that is named by its offset


def place_request(code: RequestCode, offset: int = 0, **ext: str) -> Command:
    request = request_of(code)
    places = {"offset": str(offset), "commitLogOffset": str(offset)}
    msg_id = {"msgId": str(OffsetId(Host(pack_ip("127.0.0.1"), 10911), offset))}
    fields = request.ext or {}
    fields.update({name: text for name, text in (places | msg_id | ext).items() if name in fields})
    return request


@pytest.mark.parametrize("code", sorted(BY_PLACE), ids=lambda code: code.name)
def test_the_topic_of_the_message_counts_not_the_topic_in_the_request(code: RequestCode) -> None:
    table = by_log_offset(lambda _: stored("Secret"))
    user = account(topics={TOPIC: ALL_ACTIONS}, groups={GROUP: ALL_ACTIONS})
    request = place_request(code, topic=TOPIC, originTopic=TOPIC)

    with pytest.raises(NoPermission, match="Topic:Secret"):
        authentication(table, user).check(Peer(), signed(request))


@pytest.mark.parametrize("code", sorted(BY_PLACE), ids=lambda code: code.name)
def test_a_request_for_a_missing_message_is_refused_as_not_found(code: RequestCode) -> None:
    user = account(topics={TOPIC: ALL_ACTIONS}, groups={GROUP: ALL_ACTIONS})

    with pytest.raises(ImpossibleRequest, match="can not find message by the offset, 77"):
        authentication(TABLE, user).check(Peer(), signed(place_request(code, 77)))


def test_deciding_a_transaction_needs_permission_on_its_real_topic() -> None:
    table = by_log_offset(lambda _: stored(HALF_TOPIC, REAL_TOPIC=TOPIC))
    decision = signed(place_request(RequestCode.END_TRANSACTION, topic=HALF_TOPIC))

    authentication(table, account(topics={TOPIC: [Action.PUB]})).check(Peer(), decision)
    with pytest.raises(NoPermission, match="Topic:T "):
        authentication(table, account(topics={HALF_TOPIC: ALL_ACTIONS})).check(Peer(), decision)


def test_sending_back_a_retry_needs_permission_on_its_group() -> None:
    table = by_log_offset(lambda _: stored("%RETRY%G"))

    authentication(table, account(groups={GROUP: [Action.SUB]})).check(
        Peer(), signed(place_request(RequestCode.CONSUMER_SEND_MSG_BACK))
    )


# bodies and lists


@pytest.mark.parametrize(
    ("code", "body", "why"),
    [
        (RequestCode.HEART_BEAT, {"clientID": "c", "consumerDataSet": [{"groupName": "H"}]}, "Group:H"),
        (
            RequestCode.HEART_BEAT,
            {
                "clientID": "c",
                "consumerDataSet": [
                    {"groupName": "G", "subscriptionDataSet": [{"topic": "T"}, {"topic": "Secret", "subString": "*"}]}
                ],
            },
            "Topic:Secret",
        ),
        (RequestCode.LOCK_BATCH_MQ, {"consumerGroup": "H", "clientId": "c", "mqSet": []}, "Group:H"),
        (
            RequestCode.UNLOCK_BATCH_MQ,
            {"consumerGroup": "G", "clientId": "c", "mqSet": [{"topic": "Secret", "brokerName": "b", "queueId": 0}]},
            "Topic:Secret",
        ),
        (RequestCode.CHECK_CLIENT_CONFIG, {}, r"Group:\*"),
        (
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
            {"topicConfigList": [{"topicName": "T"}, {"topicName": "Secret"}]},
            "Topic:Secret",
        ),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {"groupName": "H"}, "Group:H"),
        (
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            {"groupConfigList": [{"groupName": "G"}, {"groupName": "H"}]},
            "Group:H",
        ),
    ],
)
def test_every_name_in_a_body_is_checked(code: RequestCode, body: dict[str, Any], why: str) -> None:
    user = account(topics={TOPIC: ALL_ACTIONS}, groups={GROUP: ALL_ACTIONS})
    request = Command(int(code), {}, msgspec.json.encode(body))

    with pytest.raises(NoPermission, match=f"access {why} from"):
        authentication(TABLE, user).check(Peer(), signed(request))


@pytest.mark.parametrize("code", sorted(BODIES), ids=lambda code: code.name)
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"[" * 100_000])
def test_an_invalid_body_is_refused(code: RequestCode, body: bytes) -> None:
    user = account(topics={TOPIC: ALL_ACTIONS}, groups={GROUP: ALL_ACTIONS})

    with pytest.raises((ProtocolError, NoPermission)):
        authentication(TABLE, user).check(Peer(), signed(Command(int(code), {}, body)))


@pytest.mark.parametrize(
    ("code", "ext", "why"),
    [
        (RequestCode.GET_CONSUME_STATS, {"consumerGroup": "G", "topicList": "T;Secret"}, "Topic:Secret"),
        (RequestCode.GET_CONSUME_STATS, {"consumerGroup": "G", "topic": "Secret"}, "Topic:Secret"),
        (RequestCode.QUERY_CORRECTION_OFFSET, {"topic": "T", "compareGroup": "G", "filterGroups": "G,H"}, "Group:H"),
        (RequestCode.QUERY_CONSUME_QUEUE, {}, r"Topic:\*"),
        (RequestCode.QUERY_CONSUME_QUEUE, {"topic": "T", "consumerGroup": "H"}, "Group:H"),
        (RequestCode.CLONE_GROUP_OFFSET, {"srcGroup": "H", "destGroup": "G"}, "Group:H"),
        (RequestCode.PULL_MESSAGE, {"consumerGroup": "G", "topic": "Secret"}, "Topic:Secret"),
        (RequestCode.PULL_MESSAGE, {"consumerGroup": "G", "topic": "%RETRY%H"}, "Topic:%RETRY%H"),
        (RequestCode.UNREGISTER_CLIENT, {"clientID": "c", "consumerGroup": "H"}, "Group:H"),
    ],
)
def test_every_name_in_a_header_is_checked(code: RequestCode, ext: dict[str, str], why: str) -> None:
    user = account(topics={TOPIC: ALL_ACTIONS}, groups={GROUP: ALL_ACTIONS})

    with pytest.raises(NoPermission, match=f"access {why} from"):
        authentication(TABLE, user).check(Peer(), signed(Command(int(code), ext)))


@pytest.mark.parametrize(
    "request_",
    [
        Command(RequestCode.UNREGISTER_CLIENT, {"clientID": "c", "producerGroup": "PG"}),
        Command(RequestCode.HEART_BEAT, {}, b'{"clientID":"c","producerDataSet":[{"groupName":"PG"}]}'),
    ],
)
def test_a_heartbeat_with_producers_only_needs_no_permission(request_: Command) -> None:
    authentication(TABLE, account()).check(Peer(), signed(request_))


@pytest.mark.parametrize("binary", [False, True])
@in_virtual_time
async def test_an_unknown_code_is_answered_as_not_supported(binary: bool) -> None:
    async with running() as broker:
        client = await broker.connect()

        answer = await client.ask(9999, binary=binary)

        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert answer.remark == " request type 9999 not supported"
