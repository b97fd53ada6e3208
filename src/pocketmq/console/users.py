"""The file of those who may log in to the console: a line for each, with a salted scrypt hash and never a password.

    # made by `pocketmq console user add`
    ada:operator:scrypt$32768$8$1$<salt, hex>$<hash, hex>
    tim:viewer:scrypt$32768$8$1$…

An operator may change things, a viewer only looks.

Those who may log in, as their file says now: a user who is removed, or gets another password or role, is out within a second.

file as before ──► those known
file changed   ──► read anew; whoever is not in it as before is out, with all sessions
file wrong or gone ──► nobody is in until it can be read; the log says why, once

Sessions: who sits behind a cookie, and the token that proves that a form came from our own page.

    cookie  pocketmq_console=<32 random bytes>   HttpOnly, SameSite=Strict, Secure with TLS
    token   HMAC(key of this process, cookie)    in every form; another site cannot read it, and so cannot send it

Without a login a session has nobody in it, and its token protects all the same.

Login attempts by address: an attempt counts from its beginning, so that parallel guesses count as much as those one by one.

    attempt ── counted ──┬─ below the limit of its address ──► the password is checked ──┬─ right: taken back
                         └─ at the limit: refused, and no password is checked            └─ wrong: counts for a minute

A user who logged in from an address has a limit there that guesses at other names do not use up, and is checked beside them.
"""

import asyncio
import hashlib
import hmac
import logging
import os
import re
import secrets
import shlex
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from enum import StrEnum
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Final

import msgspec

from pocketmq.clock import Clock
from pocketmq.errors import InvalidSetting
from pocketmq.files import Files, FileStatus, write_atomically

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
    if (status := files.status(path)) is not None and status.mode & 0o007:  # other users of this machine may read it
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


LOOK_EVERY_S: Final = 1.0
"""The file is looked at no more often, however many pages are asked for. A login looks at once."""


class KnownUsers:
    """The users of one file; without a file nobody is asked who they are."""

    def __init__(self, files: Files, path: Path | None, clock: Clock) -> None:
        """InvalidSetting when the file cannot be read, is wrong, or lets nobody in."""
        self._files = files
        self._path = path
        self._clock = clock
        self._status = self._look()
        self._users: Mapping[str, User] = {} if path is None else read_users(files, path)
        self._looked = clock.monotonic()
        self._trouble = ""

    @property
    def is_login_needed(self) -> bool:
        return self._path is not None

    def find(self, name: str) -> User | None:
        """For a login: as the file is at this moment."""
        self._follow()
        return self._users.get(name)

    def has(self, user: User) -> bool:
        """Whether somebody who logged in may still be in, with the same password and role."""
        if self._clock.monotonic() - self._looked >= LOOK_EVERY_S:
            self._follow()
        return self._users.get(user.name) == user

    def _follow(self) -> None:
        self._looked = self._clock.monotonic()
        status = self._look()
        if self._path is None or (status == self._status and not self._trouble):
            return
        self._status = status
        try:
            self._users = read_users(self._files, self._path)
        except InvalidSetting as error:
            self._be_in_trouble(str(error))
        else:
            self._trouble = ""
            log.info("%s has changed; who may log in: %s", self._path, ", ".join(self._users))

    def _be_in_trouble(self, why: str) -> None:
        self._users = {}
        if why != self._trouble:
            log.error("nobody can log in now, and all who had are out: %s", why)
        self._trouble = why

    def _look(self) -> FileStatus | None:
        try:
            return None if self._path is None else self._files.status(self._path)
        except OSError:  # reading it will say why
            return None


COOKIE: Final = "pocketmq_console"


class Session(msgspec.Struct, frozen=True):
    """Whoever has this id in the cookie. `user` is None where nobody is asked to log in."""

    session_id: str
    user: User | None
    expires: float
    """By the monotonic clock."""

    @property
    def name(self) -> str | None:
        return None if self.user is None else self.user.name

    @property
    def role(self) -> Role:
        return Role.OPERATOR if self.user is None else self.user.role


class Sessions:
    """Those that are open. The oldest goes when there are too many, and those of a user whom the file has not as before."""

    def __init__(
        self, clock: Clock, session_s: float, max_sessions: int, may_stay: Callable[[User], bool] = lambda _: True
    ) -> None:
        self._clock = clock
        self._may_stay = may_stay
        self._session_s = session_s
        self._max_sessions = max_sessions
        self._key = secrets.token_bytes(32)
        self._open: dict[str, Session] = {}
        self._notes: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, user: User | None) -> Session:
        """A new one with an id that nobody knows yet: an id from before a login is never kept."""
        while len(self._open) >= self._max_sessions:
            self.end(next(iter(self._open.values())))
        made = Session(secrets.token_urlsafe(32), user, self._clock.monotonic() + self._session_s)
        self._open[made.session_id] = made
        return made

    def find(self, session_id: str | None) -> Session | None:
        found = self._open.get(session_id or "")
        if found is None:
            return None
        is_over = found.expires <= self._clock.monotonic()
        if is_over or (found.user is not None and not self._may_stay(found.user)):
            self.end(found)
            return None
        return found

    def end(self, session: Session) -> None:
        self._open.pop(session.session_id, None)
        self._notes.pop(session.session_id, None)

    def leave_note(self, session: Session, words: str) -> None:
        """Something to be said on the next page: what was done."""
        self._notes[session.session_id] = words

    def take_note(self, session: Session) -> str:
        return self._notes.pop(session.session_id, "")

    def token(self, session: Session) -> str:
        return hmac.new(self._key, session.session_id.encode(), "sha256").hexdigest()

    def is_token(self, session: Session, token: str) -> bool:
        return hmac.compare_digest(self.token(session).encode(), token.encode())


WINDOW_S: Final = 60.0
MAX_ADDRESSES: Final = 1_000
"""Addresses that are remembered; one more, and the one that was used longest ago is forgotten."""
MAX_WAITING: Final = 64
"""Attempts that wait for a check of their password; one more is refused."""
MAX_NAME_CHARS: Final = 64
IPV6_CLIENT_BITS: Final = 64
"""What one client may have to itself, and change at will."""

Key = tuple[str, str]
"""An address and a user who logged in from there before; or an address and nothing."""


class Attempt:
    """One login that is under way. `is_right` is set by the check."""

    __slots__ = ("host", "is_right", "key", "name")

    def __init__(self, host: str, name: str, key: Key) -> None:
        self.host = host
        self.name = name
        self.key = key
        self.is_right = False

    @property
    def is_known(self) -> bool:
        return bool(self.key[1])


class _Bucket:
    """The attempts of one key."""

    __slots__ = ("failed", "quiet_until", "running", "turn")

    def __init__(self) -> None:
        self.failed: deque[float] = deque()
        self.running = 0
        self.quiet_until = 0.0
        """A refusal was logged; the next one is logged after this."""
        self.turn = asyncio.Lock()

    def count(self, now: float) -> int:
        while self.failed and self.failed[0] <= now - WINDOW_S:
            self.failed.popleft()
        return len(self.failed) + self.running


class LoginAttempts:
    """Which may be made, and in which order. Two passwords are checked at a time: one of them of a user who was here before."""

    def __init__(self, clock: Clock, max_failures: int) -> None:
        self._clock = clock
        self._max_failures = max_failures
        self._buckets: dict[Key, _Bucket] = {}
        self._known: dict[Key, None] = {}
        self._waiting = 0
        self._checks = {False: asyncio.Semaphore(1), True: asyncio.Semaphore(1)}

    def begin(self, peer: str, name: str) -> Attempt | None:
        """None when the address has failed too often in the last minute, or too many attempts wait."""
        host, short = _host(peer), name[:MAX_NAME_CHARS]
        key = (host, short) if (host, short) in self._known else (host, "")
        bucket = self._buckets.pop(key, None) or _Bucket()
        self._forget()
        self._buckets[key] = bucket  # the last one used is the last one forgotten
        now = self._clock.monotonic()
        if bucket.count(now) >= self._max_failures:
            self._log_refusal(bucket, host, now, f"{self._max_failures} logins from there failed or are being checked")
            return None
        if self._waiting >= MAX_WAITING and not key[1]:
            self._log_refusal(bucket, host, now, f"{MAX_WAITING} other logins wait")
            return None
        bucket.running += 1
        return Attempt(host, short, key)

    @asynccontextmanager
    async def turn(self, attempt: Attempt) -> AsyncIterator[None]:
        """When its password may be checked: one of an address at a time, so that no address waits behind all of another's."""
        bucket = self._buckets[attempt.key]
        self._waiting += int(not attempt.is_known)
        try:
            async with bucket.turn, self._checks[attempt.is_known]:
                yield
        finally:
            self._waiting -= int(not attempt.is_known)
            self._end(attempt, bucket)

    def _end(self, attempt: Attempt, bucket: _Bucket) -> None:
        bucket.running -= 1
        if not attempt.is_right:
            bucket.failed.append(self._clock.monotonic())
            return
        self._known[attempt.host, attempt.name] = None
        while len(self._known) > MAX_ADDRESSES:
            del self._known[next(iter(self._known))]

    def _log_refusal(self, bucket: _Bucket, host: str, now: float, why: str) -> None:
        if now < bucket.quiet_until:
            return
        bucket.quiet_until = now + WINDOW_S
        log.warning("logins from %s are refused without a check of the password for up to a minute: %s", host, why)

    def _forget(self) -> None:
        idle = [key for key, bucket in self._buckets.items() if not bucket.running]
        for key in idle[: max(0, len(self._buckets) - MAX_ADDRESSES + 1)]:
            del self._buckets[key]


def _host(peer: str) -> str:
    """The address, of IPv6 the network that one client has."""
    try:
        address = ip_address(peer)
    except ValueError:
        return peer
    if not isinstance(address, IPv6Address):
        return peer
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> IPV6_CLIENT_BITS << IPV6_CLIENT_BITS))
