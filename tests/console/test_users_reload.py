"""Users who may log in, by the current file, which is checked once a second at most."""

import logging
import os
from pathlib import Path

import pytest
from tests.console.conftest import WEAK

from pocketmq.console.users import User, UsersFile
from pocketmq.errors import InvalidSetting
from pocketmq.files import DiskFiles, FileStatus
from pocketmq.testing import FakeClock

OTHER = WEAK.replace("73616c74", "73616c75")


class CountingFiles(DiskFiles):
    """Counts the checks."""

    looks = 0

    def status(self, path: Path) -> FileStatus | None:
        self.looks += 1
        return super().status(path)


def changed(path: Path, text: str) -> None:
    """Written with a time one second later, because people take longer than a tick of the disk's clock."""
    before = path.stat().st_mtime_ns
    path.write_text(text)
    os.utime(path, ns=(before + 10**9, before + 10**9))


def found(users: UsersFile, name: str) -> User:
    user = users.find(name)
    assert user is not None
    return user


def test_a_file_that_others_may_read_is_reported_once(users: Path, caplog: pytest.LogCaptureFixture) -> None:
    users.chmod(0o644)

    UsersFile(DiskFiles(), users, FakeClock())

    assert caplog.text.count("chmod") == 1


def test_without_a_file_no_login_is_needed() -> None:
    assert not UsersFile(DiskFiles(), None, FakeClock()).is_login_needed


@pytest.mark.parametrize(
    "text",
    [
        f"tim:viewer:{WEAK}\n",
        f"ada:operator:{OTHER}\ntim:viewer:{WEAK}\n",
        f"ada:viewer:{WEAK}\ntim:viewer:{WEAK}\n",
    ],
    ids=["removed", "another password", "another role"],
)
def test_a_removed_or_changed_user_loses_the_session(users: Path, text: str) -> None:
    clock = FakeClock()
    known = UsersFile(DiskFiles(), users, clock)
    ada, tim = found(known, "ada"), found(known, "tim")

    changed(users, text)
    clock.advance_ms(1_000)

    assert not known.has(ada)
    assert known.has(tim)


def test_a_login_uses_the_current_file(users: Path) -> None:
    known = UsersFile(DiskFiles(), users, FakeClock())

    changed(users, f"eve:operator:{WEAK}\n")

    assert known.find("eve") is not None
    assert known.find("ada") is None


def test_pages_check_the_file_once_a_second(users: Path) -> None:
    clock, files = FakeClock(), CountingFiles()
    known = UsersFile(files, users, clock)
    ada = found(known, "ada")

    before = files.looks
    for _ in range(1_000):
        clock.advance_ms(10)
        assert known.has(ada)

    assert files.looks - before == 10


def test_an_unusable_file_ends_all_sessions_and_is_logged_once(users: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    known = UsersFile(DiskFiles(), users, clock)
    ada, good = found(known, "ada"), users.read_text()

    with caplog.at_level(logging.ERROR):
        changed(users, "ada:operator\n")
        for _ in range(3):
            clock.advance_ms(1_000)
            assert not known.has(ada)
        users.unlink()
        clock.advance_ms(1_000)
        assert not known.has(ada)

    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "line 1: expected NAME:operator|viewer" in told[0]
    assert "cannot read the users file" in told[1]
    users.write_text(good)
    assert known.find("ada") == ada
    assert known.is_login_needed


def test_an_invalid_file_at_the_start_is_refused(users: Path) -> None:
    users.write_text("")

    with pytest.raises(InvalidSetting, match="has no users"):
        UsersFile(DiskFiles(), users, FakeClock())
