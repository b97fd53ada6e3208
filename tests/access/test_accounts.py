"""Accounts: what each may do, and from where."""

from ipaddress import ip_network

import pytest
from tests.access.kit import ADMIN, STRANGER, USER, account

from pocketmq.access.accounts import Accounts, Action, Resource, Rights
from pocketmq.errors import InvalidSetting

PUB, SUB, GET, UPDATE, DELETE = Action.PUB, Action.SUB, Action.GET, Action.UPDATE, Action.DELETE


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("orders", "orders", True),
        ("orders", "orders2", False),
        ("orders", "Orders", False),
        ("orders*", "orders", True),
        ("orders*", "orders-eu", True),
        ("orders*", "order", False),
        ("*", "anything", True),
        ("*", None, True),
        ("orders*", None, False),
        ("orders", None, False),
        ("orders", "", False),
        ("*", "", True),
    ],
)
def test_a_pattern_is_a_name_or_the_beginning_of_names(pattern: str, name: str | None, fits: bool) -> None:
    assert Rights({pattern: [PUB]}).allow((PUB,), name) is fits


def test_one_of_the_required_actions_is_enough_and_permissions_add_up() -> None:
    rights = Rights({"a": [PUB], "a*": [SUB], "*": [GET]})

    assert rights.allow((SUB, PUB), "a")
    assert rights.allow((SUB,), "a")
    assert rights.allow((GET,), "a")
    assert rights.allow((SUB,), "ab")
    assert not rights.allow((PUB,), "ab")
    assert not rights.allow((UPDATE, DELETE), "a")
    assert not Rights().allow((PUB,), "a")


def test_kinds_of_resources_have_rights_of_their_own() -> None:
    who = account(topics={"x": [PUB]}, groups={"y": [SUB]}, clusters={"z": [UPDATE]})

    assert who.may(Resource.TOPIC, (PUB,), "x")
    assert who.may(Resource.GROUP, (SUB,), "y")
    assert who.may(Resource.CLUSTER, (UPDATE,), "z")
    assert not who.may(Resource.TOPIC, (PUB,), "y")
    assert not who.may(Resource.GROUP, (SUB,), "x")
    assert not who.may(Resource.CLUSTER, (UPDATE,), None)


def test_topics_groups_and_clusters_have_separate_permissions() -> None:
    who = account(ADMIN, is_admin=True)

    assert all(who.may(resource, (action,), name) for resource in Resource for action in Action for name in ("x", None))


@pytest.mark.parametrize("prefix", ["%RETRY%", "%DLQ%"])
def test_retry_and_dead_letter_topics_belong_to_their_group(prefix: str) -> None:
    member = account(groups={"G": [SUB]})
    outsider = account(topics={"*": list(Action)})

    assert member.may(Resource.TOPIC, (SUB,), prefix + "G")
    assert member.may(Resource.TOPIC, (PUB,), prefix + "G")
    assert not member.may(Resource.TOPIC, (DELETE,), prefix + "G")
    assert not member.may(Resource.TOPIC, (SUB,), prefix + "H")
    assert not outsider.may(Resource.TOPIC, (SUB,), prefix + "G")


@pytest.mark.parametrize(
    ("host", "may"),
    [
        ("10.1.2.3", True),
        ("10.2.0.1", False),
        ("127.0.0.1", True),
        ("::ffff:10.1.2.3", True),
        ("fd00::7", True),
        ("fd01::7", False),
        ("", False),
        ("a-name", False),
    ],
)
def test_an_account_may_be_limited_to_source_addresses(host: str, may: bool) -> None:
    networks = tuple(ip_network(text) for text in ("10.1.0.0/16", "127.0.0.1", "fd00::/64"))

    assert account(sources=networks).may_come_from(host) is may
    assert account().may_come_from(host)


def test_two_accounts_cannot_have_one_key() -> None:
    with pytest.raises(InvalidSetting, match="two accounts have access key 'user'"):
        Accounts([account(), account(is_admin=True)])


def test_the_first_account_that_may_registers_brokers() -> None:
    monitor = account(clusters={"Other": [UPDATE], "*": [GET]})
    broker = account(STRANGER, clusters={"Default*": [UPDATE]})
    admin = account(ADMIN, is_admin=True)

    assert Accounts([monitor]).registrar("DefaultCluster") is None
    assert Accounts([monitor, admin]).registrar("DefaultCluster") is admin
    assert Accounts([monitor, broker, admin]).registrar("DefaultCluster") is broker


def test_the_first_account_with_the_permission_registers_brokers() -> None:
    shown = [repr(account()), str(account()), f"{account()}", repr(Accounts([account()])), repr([account()])]

    assert not any(USER.secret in text for text in shown)
    assert shown[0] == "Account('user')"
