"""The file of accounts: what it may contain, and that error messages never contain a secret."""

from pathlib import Path

import pytest
from tests.access.kit import FILE, put_file

from pocketmq.access.accounts import Accounts, Action, Resource
from pocketmq.access.accounts_file import MAX_FILE_BYTES, read_accounts
from pocketmq.errors import InvalidSetting
from pocketmq.files import DiskFiles
from pocketmq.testing import FaultyFiles

SECRET = "hushhushhush"
KEY = 'access_key = "orders"\n'
SIGNED = f'{KEY}secret = "{SECRET}"\n'


def read(text: str, environment: dict[str, str] | None = None, disk: FaultyFiles | None = None) -> Accounts:
    disk = disk or FaultyFiles()
    return read_accounts(disk, put_file(disk, text), environment or {})


def one(rows: str, **environment: str) -> Accounts:
    return read(f"[[account]]\n{rows}", environment)


def test_secrets_are_not_shown() -> None:
    accounts = read(
        f"""
        [[account]]
        {KEY}
        secret = "{SECRET}"
        topics = {{ "orders*" = ["Pub", "sub"], "RMQ_SYS_TRACE_TOPIC" = ["PUB"] }}
        groups = {{ "orders-workers" = ["Sub"] }}
        sources = ["10.1.0.0/16", "127.0.0.1", "::1"]

        [[account]]
        access_key = "operator"
        secret = "another secret"
        admin = true
        """
    )

    orders, operator = accounts
    assert (orders.access_key, orders.credentials.secret, orders.is_admin) == ("orders", SECRET, False)
    assert orders.may(Resource.TOPIC, (Action.SUB,), "orders-eu")
    assert not orders.may(Resource.TOPIC, (Action.SUB,), "RMQ_SYS_TRACE_TOPIC")
    assert orders.may_come_from("10.1.9.9")
    assert not orders.may_come_from("10.2.9.9")
    assert operator.is_admin
    assert accounts.get("operator") is operator
    assert accounts.get("Operator") is None


def test_a_secret_may_be_in_the_environment() -> None:
    (account,) = one(f'{KEY}secret_env = "ORDERS_SECRET"', ORDERS_SECRET=SECRET)

    assert account.credentials.secret == SECRET


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_secret_may_be_in_a_file_in_the_same_folder(end: str) -> None:
    disk = FaultyFiles()
    put_file(disk, SECRET + end, FILE.parent / "orders.secret")

    (account,) = read(f'[[account]]\n{KEY}secret_file = "orders.secret"', disk=disk)

    assert account.credentials.secret == SECRET


def test_a_secret_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"\xff" * 12)
    file = tmp_path / "accounts.toml"
    file.write_text(f'[[account]]\n{KEY}secret_file = "secret"')

    with pytest.raises(InvalidSetting, match="/secret is not UTF-8"):
        read_accounts(DiskFiles(), file, {})


def test_a_secret_file_may_be_in_another_folder(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    file = tmp_path / "conf" / "accounts.toml"
    file.parent.mkdir()
    file.write_text(f'[[account]]\n{KEY}secret_file = "{tmp_path / "secret"}"')

    (account,) = read_accounts(DiskFiles(), file, {})

    assert account.credentials.secret == SECRET


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the file has 0 accounts; 1 to 10000 are allowed"),
        ("[account]\n" + SIGNED, "each account begins with [[account]], in double brackets"),
        ("account = [7]", "each account begins with [[account]]"),
        ("[[accounts]]\n" + SIGNED, "unknown name 'accounts'; each account begins with [[account]]"),
        (f"[[account]]\n{KEY}secret = hushhush", "not TOML: Invalid value (at line 3, column 10)"),
        (f'[[account]]\n{KEY}secret = "{SECRET}', "not TOML"),
        ("[[account]]\n" + SIGNED + "[[account]]\n" + SIGNED, "two accounts have access key 'orders'"),
    ],
)
def test_an_invalid_file_is_refused_with_its_name(text: str, why: str) -> None:
    with pytest.raises(InvalidSetting) as refusal:
        read(text)

    assert str(refusal.value).startswith(f"accounts in {FILE}: ")
    assert why in str(refusal.value)
    assert SECRET not in str(refusal.value)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ('secret = "hushhushhush"', "account 1: access_key must be a text of 1 to 128 printable characters"),
        ('access_key = "a\\n"\nsecret = "hushhushhush"', "access_key must be a text"),
        ('access_key = " "\nsecret = "hushhushhush"', "access_key must be a text"),
        (f'access_key = "{"k" * 129}"', "access_key must be a text"),
        (KEY, "account 1 ('orders'): it needs one of secret, secret_env, secret_file, and has none"),
        (f'{SIGNED}secret_env = "X"', "and has secret and secret_env"),
        (f"{KEY}secret = 12345678", "secret must be a text"),
        (f'{KEY}secret = "hushhus"', "its secret must have at least 8 characters"),
        (f'{KEY}secret_env = "NONE"', "the environment variable NONE of secret_env is not set"),
        (f'{KEY}secret_env = "SHORT"', "its secret must have at least 8 characters"),
        (f'{KEY}secret_file = "none"', "its secret_file /etc/none cannot be read: No such file or directory"),
        (f'{SIGNED}admin = "yes"', "admin must be true or false"),
        (f"{SIGNED}admin = true\ntopics = {{ }}", "an administrator may do everything; remove topics, or admin"),
        (f"{SIGNED}tpoics = {{ }}", "unknown name 'tpoics'; did you mean 'topics'?"),
        (
            f'{SIGNED}topics = ["orders"]',
            'topics must be a table of names and actions: topics = { "orders*" = ["Sub"] }',
        ),
        (f'{SIGNED}topics = {{ "orders.*" = ["Sub"] }}', "'orders.*' is not a valid pattern"),
        (f'{SIGNED}topics = {{ "*orders" = ["Sub"] }}', "'*orders' is not a valid pattern"),
        (f'{SIGNED}groups = {{ "" = ["Sub"] }}', "'' is not a valid pattern"),
        (f'{SIGNED}topics = {{ "%RETRY%orders" = ["Sub"] }}', "'%RETRY%orders' has no effect, because retry and"),
        (f'{SIGNED}topics = {{ "%DLQ%orders*" = ["Sub"] }}', 'use groups = { "orders*" = ["Sub"] }'),
        (f'{SIGNED}topics = {{ "orders" = "Sub" }}', "'orders' must have a list of actions"),
        (f'{SIGNED}topics = {{ "orders" = [] }}', "'orders' must have a list of actions"),
        (f'{SIGNED}topics = {{ "orders" = ["Read"] }}', "unknown action 'Read'; expected one of Pub, Sub, Create"),
        (f'{SIGNED}clusters = {{ "*" = ["Update"] }}', "an account that may change all of them is an administrator"),
        (f'{SIGNED}sources = "10.0.0.1"', "sources must be a list of addresses"),
        (f"{SIGNED}sources = []", "sources must be a list of addresses"),
        (f"{SIGNED}sources = [10]", "sources must be a list of addresses"),
        (f'{SIGNED}sources = ["10.0.0.1/8"]', "sources: 10.0.0.1/8 has host bits set"),
        (f'{SIGNED}sources = ["my-host"]', "sources: 'my-host' does not appear to be an IPv4 or IPv6 network"),
    ],
)
def test_an_error_names_the_account_that_has_the_mistake(rows: str, why: str) -> None:
    with pytest.raises(InvalidSetting) as refusal:
        one(rows, SHORT="hush")

    assert why in str(refusal.value)
    assert f"accounts in {FILE}: account 1" in str(refusal.value)
    assert "hush" not in str(refusal.value)
    assert refusal.value.__cause__ is None


def test_the_second_account_is_named_by_its_number() -> None:
    with pytest.raises(InvalidSetting, match=r"account 2 \('b'\)"):
        read(f'[[account]]\n{SIGNED}[[account]]\naccess_key = "b"')


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"none\.toml: the file cannot be read: No such file"):
        read_accounts(DiskFiles(), tmp_path / "none.toml", {})

    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidSetting, match="not UTF-8: at byte 0"):
        read_accounts(DiskFiles(), tmp_path / "binary", {})

    with pytest.raises(InvalidSetting, match=f"at most {MAX_FILE_BYTES} are read"):
        read("#" * (MAX_FILE_BYTES + 1))


def test_an_account_may_change_named_clusters_and_read_all_clusters() -> None:
    (account,) = one(f'{SIGNED}clusters = {{ "DefaultCluster" = ["Update"], "*" = ["Get"] }}')

    assert account.may(Resource.CLUSTER, (Action.UPDATE,), "DefaultCluster")
    assert account.may(Resource.CLUSTER, (Action.GET,), None)
    assert not account.may(Resource.CLUSTER, (Action.UPDATE,), None)
