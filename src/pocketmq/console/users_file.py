"""The file of those who may log in to the console: a line for each, with a salted scrypt hash and never a password.

    # made by `pocketmq console user add`
    ada:operator:scrypt$32768$8$1$<salt, hex>$<hash, hex>
    tim:viewer:scrypt$32768$8$1$…

An operator may change things, a viewer only looks.
"""

import hashlib
import hmac
import logging
import os
import re
import shlex
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from pocketmq.errors import InvalidSetting
from pocketmq.files import Files, is_open_to_others, write_atomically

log = logging.getLogger("pocketmq.console")

SCRYPT_N: Final = 2**15
SCRYPT_R: Final = 8
SCRYPT_P: Final = 1
MAX_MEMORY: Final = 256 * 1024 * 1024
"""What one check may take; a file cannot make the console take more."""
SALT_BYTES: Final = 16
HASH_BYTES: Final = 32
MIN_PASSWORD_CHARS: Final = 8
MAX_PASSWORD_CHARS: Final = 1_000
_NAME: Final = re.compile(r"[\w.@-]{1,64}")
_HEAD: Final = "# Users of the console. Made by `pocketmq console user add`; passwords are scrypt hashes.\n"


class Role(StrEnum):
    OPERATOR = "operator"
    VIEWER = "viewer"


class User(msgspec.Struct, frozen=True):
    """Somebody who may log in."""

    name: str
    role: Role
    secret: str
    """`scrypt$n$r$p$salt$hash`."""

    def __repr__(self) -> str:
        return f"User({self.name!r}, {self.role.value})"


def hashed(password: str) -> str:
    """What is kept of a password; InvalidSetting when it is too short to protect anything."""
    if not MIN_PASSWORD_CHARS <= len(password) <= MAX_PASSWORD_CHARS:
        raise InvalidSetting(
            f"a password needs {MIN_PASSWORD_CHARS} characters or more, and {MAX_PASSWORD_CHARS} at most"
        )
    salt = os.urandom(SALT_BYTES)
    made = _scrypt(password, salt, SCRYPT_N, SCRYPT_R, SCRYPT_P)
    return f"scrypt${SCRYPT_N}${SCRYPT_R}${SCRYPT_P}${salt.hex()}${made.hex()}"


def matches(secret: str, password: str) -> bool:
    """Whether it is the password. Takes some 0.1 s and 32 MiB, so that guessing does, too."""
    _, n, r, p, salt, expected = secret.split("$")
    made = _scrypt(password[:MAX_PASSWORD_CHARS], bytes.fromhex(salt), int(n), int(r), int(p))
    return hmac.compare_digest(made, bytes.fromhex(expected))


def parse_users(text: str, source: str) -> dict[str, User]:
    """By name; InvalidSetting naming the line that is wrong."""
    users: dict[str, User] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        user = _user(line.strip(), f"{source}, line {number}")
        if user.name in users:
            raise InvalidSetting(f"{source}, line {number}: there are two users {user.name!r}")
        users[user.name] = user
    return users


def read_users(files: Files, path: Path) -> dict[str, User]:
    """InvalidSetting when the file cannot be read, is wrong, or lets nobody in."""
    try:
        text = files.read(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"the users in {path} cannot be read: {error}") from error
    if is_open_to_others(files, path):
        log.warning(
            "the users file %s can be read by other users of this machine, who may try to guess the passwords; to prevent that: "
            "chmod o= %s",
            path,
            shlex.quote(str(path)),
        )
    users = parse_users(text, str(path))
    if not users:
        raise InvalidSetting(f"{path} names no user; add one by `pocketmq console user add NAME --users {path}`")
    return users


def write_users(files: Files, path: Path, users: Iterable[User]) -> None:
    lines = [f"{user.name}:{user.role.value}:{user.secret}\n" for user in users]
    write_atomically(files, path, (_HEAD + "".join(lines)).encode())


def new_user(name: str, role: Role, password: str) -> User:
    return User(_checked_name(name), role, hashed(password))


def _user(line: str, where: str) -> User:
    name, _, rest = line.partition(":")
    role, _, secret = rest.partition(":")
    parts = secret.split("$")
    if role not in list(Role) or len(parts) != 6 or parts[0] != "scrypt":
        raise InvalidSetting(f"{where}: it must be NAME:operator|viewer:scrypt$n$r$p$salt$hash")
    try:
        n, r, p = map(int, parts[1:4])
        salt, made = bytes.fromhex(parts[4]), bytes.fromhex(parts[5])
    except ValueError as error:
        raise InvalidSetting(f"{where}: the hash cannot be read: {error}") from error
    is_sane = n > 1 and n & (n - 1) == 0 and r > 0 and p > 0 and 128 * n * r * p <= MAX_MEMORY // 2
    if not is_sane or not salt or len(made) != HASH_BYTES:
        raise InvalidSetting(f"{where}: the hash cannot be used; make it anew by `pocketmq console user add`")
    return User(_checked_name(name), Role(role), secret)


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=n, r=r, p=p, maxmem=MAX_MEMORY, dklen=HASH_BYTES)


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidSetting(f"user name {name!r}: it has 1 to 64 letters, digits, '_', '.', '@' or '-'")
    return name
