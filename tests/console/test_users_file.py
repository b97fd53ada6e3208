"""The file of users: hashes only, and an invalid line is named."""

from pathlib import Path

import pytest

from pocketmq.console.users import Role, hash_password, matches, new_user, parse_users, read_users, write_users
from pocketmq.errors import InvalidSetting
from pocketmq.files import DiskFiles

GOOD = "scrypt$2$1$1$00$" + "ab" * 32


def test_a_password_matches_its_hash_and_no_other_does() -> None:
    secret = hash_password("correct horse")

    assert "correct" not in secret
    assert matches(secret, "correct horse")
    assert not matches(secret, "correct horsf")
    assert secret != hash_password("correct horse"), "each has salt of its own"


def test_the_users_file_is_readable_by_its_owner_only_and_read_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "users"
    ada = new_user("ada", Role.OPERATOR, "correct horse")

    write_users(DiskFiles(), path, [ada])

    assert read_users(DiskFiles(), path) == {"ada": ada}
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "line",
    [
        "ada",
        f"ada:king:{GOOD}",
        f"a b:viewer:{GOOD}",
        "ada:viewer:plain",
        "ada:viewer:scrypt$3$1$1$00$" + "ab" * 32,
        "ada:viewer:scrypt$x$1$1$00$" + "ab" * 32,
        "ada:viewer:scrypt$1073741824$8$1$00$" + "ab" * 32,
        "ada:viewer:scrypt$2$1$1$00$abcd",
        f"ada:viewer:{GOOD}\nada:viewer:{GOOD}",
    ],
)
def test_an_invalid_line_is_refused(line: str) -> None:
    with pytest.raises(InvalidSetting):
        parse_users(line, "users")


def test_comments_and_empty_lines_are_ignored() -> None:
    assert list(parse_users(f"# hello\n\nada:viewer:{GOOD}\n", "users")) == ["ada"]


def test_a_file_without_users_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "users"
    with pytest.raises(InvalidSetting, match="cannot read the users file"):
        read_users(DiskFiles(), path)
    path.write_text("# nobody\n")
    with pytest.raises(InvalidSetting, match="has no users"):
        read_users(DiskFiles(), path)


def test_a_short_password_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="8 to 1000 characters"):
        hash_password("short")


def test_a_user_never_shows_its_hash() -> None:
    assert "scrypt" not in repr(new_user("ada", Role.VIEWER, "correct horse"))


def test_a_file_that_others_may_read_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "users"
    write_users(DiskFiles(), path, [new_user("ada", Role.OPERATOR, "correct horse")])
    read_users(DiskFiles(), path)
    assert not caplog.text
    path.chmod(0o644)

    read_users(DiskFiles(), path)

    assert f"chmod o= {path}" in caplog.text
