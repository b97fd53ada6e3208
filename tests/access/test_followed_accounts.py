"""Accounts that change while a server runs."""

import asyncio
import logging
from pathlib import Path

import pytest
from tests.access.kit import FILE, TEXT, put_file

import pocketmq
from pocketmq.access.accounts_file import FOLLOW_S, FollowedAccounts
from pocketmq.errors import InvalidSetting, NoPermission
from pocketmq.files import DiskFiles
from pocketmq.protocol.signing import Credentials
from pocketmq.testing import FaultyFiles

OPERATOR = Credentials("operator", "the secret of operator")
USER = Credentials("user", "the secret of user")
DEADLINE_S = 30


def row(credentials: Credentials, rights: str) -> str:
    return f'[[account]]\naccess_key = "{credentials.access_key}"\nsecret = "{credentials.secret}"\n{rights}\n'


BOTH = row(OPERATOR, "admin = true") + row(USER, 'topics = { "orders" = ["Pub"] }')


def test_a_file_that_did_not_change_is_not_read_again() -> None:
    disk = FaultyFiles()
    accounts = FollowedAccounts(disk, put_file(disk), {})
    known = accounts.current

    assert accounts.reload() == []
    assert accounts.current is known


def test_changed_accounts_are_logged() -> None:
    disk = FaultyFiles()
    accounts = FollowedAccounts(disk, put_file(disk), {})

    put_file(disk, TEXT.replace('"Pub", "Sub"', '"Sub"') + row(USER, "").replace("user", "another"))

    assert [one.access_key for one in accounts.reload()] == ["user"]
    assert [one.access_key for one in accounts.current] == ["admin", "user", "another"]


def test_a_wrong_file_keeps_the_previous_accounts_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyFiles()
    accounts = FollowedAccounts(disk, put_file(disk), {})
    known = accounts.current
    disk.unlink(FILE)
    put_file(disk, "[[account]]\naccess_key = 5\n")

    assert accounts.reload() == accounts.reload() == []

    assert accounts.current is known
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "access_key must be a text" in record.getMessage()
    put_file(disk, TEXT)
    assert accounts.reload() == []
    assert accounts.current is not known


def test_changes_of_a_secret_file_are_followed() -> None:
    disk = FaultyFiles()
    put_file(disk, "the first secret", FILE.parent / "user.secret")
    text = '[[account]]\naccess_key = "user"\nsecret_file = "user.secret"\n'
    accounts = FollowedAccounts(disk, put_file(disk, text), {})

    put_file(disk, "the second secret", FILE.parent / "user.secret")

    assert [one.access_key for one in accounts.reload()] == ["user"]
    [user] = accounts.current
    assert user.credentials.secret == "the second secret"


def test_a_missing_file_keeps_the_previous_accounts() -> None:
    disk = FaultyFiles()
    accounts = FollowedAccounts(disk, put_file(disk), {})
    disk.unlink(FILE)

    assert accounts.reload() == []
    assert len(accounts.current) == 2


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, False), (0o644, True), (0o602, True)])
def test_a_file_that_others_can_read_causes_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, warned: bool
) -> None:
    path = tmp_path / "accounts.toml"
    path.write_text(TEXT)
    path.chmod(mode)

    FollowedAccounts(DiskFiles(), path, {})

    assert ("every user of this machine can read or change it" in caplog.text) is warned


def test_a_wrong_file_at_the_start_is_refused() -> None:
    disk = FaultyFiles()

    with pytest.raises(InvalidSetting):
        FollowedAccounts(disk, put_file(disk, "nonsense"), {})


def changed(path: Path, text: str) -> None:
    """As an editor or a deployment replaces a file."""
    draft = path.with_suffix(".new")
    draft.write_text(text)
    draft.chmod(0o600)
    draft.replace(path)


async def until_allowed(name_server: str, credentials: Credentials, *, is_allowed: bool) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                async with pocketmq.AsyncProducer(name_server, credentials=credentials, retries=0) as producer:
                    await producer.send("orders", b"x")
            except NoPermission:
                if not is_allowed:
                    return
            else:
                if is_allowed:
                    return
            await asyncio.sleep(FOLLOW_S / 20)


def test_a_running_server_follows_changes_of_its_accounts_and_of_its_own_account(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Removed, added again with another secret; the broker's own account, by which it registers, gets another one, too."""
    path = tmp_path / "accounts.toml"
    changed(path, BOTH)
    again = Credentials("user", "another secret of user")
    broker = Credentials("operator", "another secret of operator")

    async def scenario() -> None:
        async with pocketmq.Server(tmp_path / "data", accounts=path) as server:
            await until_allowed(server.name_server, OPERATOR, is_allowed=True)
            await until_allowed(server.name_server, USER, is_allowed=True)

            changed(path, row(OPERATOR, "admin = true"))
            await until_allowed(server.name_server, USER, is_allowed=False)

            changed(path, row(broker, "admin = true") + row(again, 'topics = { "orders" = ["Pub"] }'))
            await until_allowed(server.name_server, again, is_allowed=True)
            await until_allowed(server.name_server, OPERATOR, is_allowed=False)

            changed(path, "this is no TOML")
            async with asyncio.timeout(DEADLINE_S):
                while caplog.text.count("Cannot reload accounts") < 2:  # noqa: ASYNC110 a line of the log is no event
                    await asyncio.sleep(FOLLOW_S / 20)
            await until_allowed(server.name_server, again, is_allowed=True)
            async with pocketmq.AsyncAdmin(server.name_server, credentials=broker) as admin:
                await admin.topics.create("made-later", queues=1)  # the name server learns of it from the broker

    asyncio.run(scenario())
