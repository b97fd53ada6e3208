"""Exactly one row for every code that a name server serves."""

import pytest
from tests.access.kit import (
    ADMIN,
    ALL_ACTIONS,
    CLUSTER,
    FILE,
    TOPIC,
    account,
    account_for,
    authentication,
    put_file,
    request_of,
    signed,
)
from tests.nameserver.talk import connected
from tests.protocol.request_tables import NAME_SERVER_REQUESTS, rows

from pocketmq.access.accounts import Access, Action, Resource
from pocketmq.codes import HeaderEncoding, RequestCode
from pocketmq.errors import InvalidSetting, NoPermission
from pocketmq.nameserver.server import ACCESS, NameServer
from pocketmq.nameserver.settings import NameServerSettings
from pocketmq.net.peer import Peer
from pocketmq.protocol.api import request_header
from pocketmq.protocol.command import Command
from pocketmq.testing import FaultyFiles, MemoryNetwork, run

SERVED = set(rows(NAME_SERVER_REQUESTS))
CHANGING_WORDS = ("REGISTER", "UPDATE", "DELETE", "PUT", "WIPE", "ADD", "HEARTBEAT")


def test_every_request_to_a_name_server_has_a_row_and_no_other_has() -> None:
    assert set(ACCESS) == SERVED
    assert len(SERVED) == 23


every_code = pytest.mark.parametrize("code", ACCESS, ids=lambda code: code.name)


@every_code
def test_the_fields_that_name_resources_exist(code: RequestCode) -> None:
    fields = request_header(code).__struct_fields__

    assert ACCESS[code]
    assert all(one.named_by in fields for one in ACCESS[code] if isinstance(one.named_by, str))


@every_code
def test_a_request_that_changes_state_needs_more_than_read_permission(code: RequestCode) -> None:
    changes = any(word in code.name for word in CHANGING_WORDS)
    reads = all(one.action in (Action.GET, Action.LIST) for one in ACCESS[code])

    assert changes != reads or code is RequestCode.QUERY_DATA_VERSION


def test_a_query_of_the_data_version_keeps_a_broker_alive_and_needs_more_than_read_permission() -> None:
    assert ACCESS[RequestCode.QUERY_DATA_VERSION] == (Access(Resource.CLUSTER, Action.UPDATE, "cluster_name"),)


@every_code
def test_the_permissions_of_a_row_are_sufficient_and_an_administrator_needs_none(code: RequestCode) -> None:
    check = authentication(ACCESS, account_for(ACCESS[code]), account(ADMIN, is_admin=True))

    check.check(Peer(), signed(request_of(code)))
    check.check(Peer(), signed(request_of(code), ADMIN))


@every_code
def test_permissions_for_other_resources_do_not_apply(code: RequestCode) -> None:
    others = {"Other*": ALL_ACTIONS}
    check = authentication(ACCESS, account(topics=others, groups=others, clusters=others))

    with pytest.raises(NoPermission, match="no matched policies"):
        check.check(Peer(), signed(request_of(code)))


@every_code
def test_all_rights_to_all_topics_and_groups_do_not_make_an_administrator(code: RequestCode) -> None:
    check = authentication(ACCESS, account(topics={"*": ALL_ACTIONS}, groups={"*": ALL_ACTIONS}))

    if any(one.resource is Resource.CLUSTER for one in ACCESS[code]):
        with pytest.raises(NoPermission):
            check.check(Peer(), signed(request_of(code)))
    else:
        check.check(Peer(), signed(request_of(code)))


@every_code
def test_unsigned_requests_are_refused_whatever_their_code(code: RequestCode) -> None:
    with pytest.raises(NoPermission, match="username cannot be null"):
        authentication(ACCESS, account(is_admin=True)).check(Peer(), request_of(code))


@pytest.mark.parametrize("action", [Action.PUB, Action.SUB, Action.GET])
def test_a_client_of_a_topic_may_read_its_route_and_the_template(action: Action) -> None:
    check = authentication(ACCESS, account(topics={TOPIC: [action]}))

    for topic in (TOPIC, "TBW102"):
        check.check(Peer(), signed(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})))
    with pytest.raises(NoPermission, match="Topic:Other"):
        check.check(Peer(), signed(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "Other"})))


def test_the_account_of_a_broker_need_not_be_an_administrator() -> None:
    check = authentication(ACCESS, account(clusters={CLUSTER: [Action.UPDATE]}))
    registration = request_of(RequestCode.REGISTER_BROKER)

    check.check(Peer(), signed(registration))
    registration.ext = {**(registration.ext or {}), "clusterName": "Other"}

    with pytest.raises(NoPermission, match="Cluster:Other"):
        check.check(Peer(), signed(registration))
    with pytest.raises(NoPermission, match=r"Cluster:\*"):
        check.check(Peer(), signed(request_of(RequestCode.PUT_KV_CONFIG)))


@pytest.mark.parametrize("encoding", list(HeaderEncoding), ids=lambda encoding: encoding.name)
def test_a_name_server_with_accounts_answers_only_signed_requests(encoding: HeaderEncoding) -> None:
    async def main() -> None:
        disk, network = FaultyFiles(), MemoryNetwork()
        settings = NameServerSettings(accounts=put_file(disk))
        async with NameServer(settings, network=network, files=disk) as server:
            peer = await connected(network, server.address)
            for code in ACCESS:
                unsigned = await peer.call(request_of(code, encoding))
                assert (unsigned.code, unsigned.remark) == (16, "username cannot be null.")
                assert (await peer.call(signed(request_of(code, encoding), ADMIN))).code != 16
            peer.oneway(Command(RequestCode.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": "v"}))
            question = Command(RequestCode.GET_KV_CONFIG, {"namespace": "n", "key": "k"}, encoding=encoding)
            found = await peer.call(signed(question, ADMIN))

            assert found.code == 22
            assert peer.is_open
            assert peer.unmatched == 0

    run(main())


def test_on_addresses_that_others_reach_a_name_server_needs_accounts_or_the_option() -> None:
    assert not NameServerSettings(host="10.0.0.1", accounts=FILE).address.is_loopback
    with pytest.raises(InvalidSetting, match="--accounts FILE"):
        NameServerSettings(host="10.0.0.1")
