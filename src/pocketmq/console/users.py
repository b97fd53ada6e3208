"""Users of the console, sessions and login attempts.

The users file has one line per user, with a salted scrypt hash of the password:

    # Created by `pocketmq console user add`
    ada:operator:scrypt$32768$8$1$<salt, hex>$<hash, hex>
    tim:viewer:scrypt$32768$8$1$…

An operator can change the cluster, a viewer can only read. The console reloads a changed file within a second and ends the sessions
of users who were removed or have a new password or role. If the file is missing or invalid, no user is valid; the log says so once.

A session has a cookie, and a token that proves that a form is from a page of this console:

    cookie  pocketmq_console=<32 random bytes>   HttpOnly, SameSite=Strict, Secure with TLS
    token   HMAC(key of this process, cookie)    in every form; another site can neither read nor send it

Without a login, sessions have no user, but the token still protects forms.

Login attempts are limited per address. An attempt counts from its start, so that parallel guesses do not evade the limit:

    attempt ──┬─ below the limit of its address ──► check the password ──┬─ right: does not count
              └─ at the limit: rejected, no check                        └─ wrong: counts for a minute

A user who has logged in from an address before has a separate limit there, which guesses for other names do not use up.
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
"""The memory limit of one check, whatever the file says."""
SALT_BYTES: Final = 16
HASH_BYTES: Final = 32
MIN_PASSWORD_CHARS: Final = 8
MAX_PASSWORD_CHARS: Final = 1_000
_NAME: Final = re.compile(r"[\w.@-]{1,64}")
_HEAD: Final = "# Users of the console. Created by `pocketmq console user add`; passwords are scrypt hashes.\n"


class Role(StrEnum):
    OPERATOR = "operator"
    VIEWER = "viewer"


class User(msgspec.Struct, frozen=True):
    name: str
    role: Role
    secret: str
    """`scrypt$n$r$p$salt$hash`."""

    def __repr__(self) -> str:
        return f"User({self.name!r}, {self.role.value})"


def hash_password(password: str) -> str:
    """A salted scrypt hash. InvalidSetting if the password is too short or too long."""
    if not MIN_PASSWORD_CHARS <= len(password) <= MAX_PASSWORD_CHARS:
        raise InvalidSetting(f"a password must have {MIN_PASSWORD_CHARS} to {MAX_PASSWORD_CHARS} characters")
    salt = os.urandom(SALT_BYTES)
    made = _scrypt(password, salt, SCRYPT_N, SCRYPT_R, SCRYPT_P)
    return f"scrypt${SCRYPT_N}${SCRYPT_R}${SCRYPT_P}${salt.hex()}${made.hex()}"


def matches(secret: str, password: str) -> bool:
    """Whether the password is right. The check takes 0.1 s and 32 MiB, which slows down guessing."""
    _, n, r, p, salt, expected = secret.split("$")
    made = _scrypt(password[:MAX_PASSWORD_CHARS], bytes.fromhex(salt), int(n), int(r), int(p))
    return hmac.compare_digest(made, bytes.fromhex(expected))


def parse_users(text: str, source: str) -> dict[str, User]:
    """Users by name. InvalidSetting names an invalid line."""
    users: dict[str, User] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        user = _user(line.strip(), f"{source}, line {number}")
        if user.name in users:
            raise InvalidSetting(f"{source}, line {number}: duplicate user {user.name!r}")
        users[user.name] = user
    return users


def read_users(files: Files, path: Path) -> dict[str, User]:
    """InvalidSetting if the file cannot be read, is invalid, or has no users."""
    try:
        text = files.read(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"cannot read the users file {path}: {error}") from error
    if (status := files.status(path)) is not None and status.mode & 0o007:  # readable by other users of this machine
        log.warning(
            "other users of this machine can read the users file %s and try to guess passwords; run: chmod o= %s",
            path,
            shlex.quote(str(path)),
        )
    users = parse_users(text, str(path))
    if not users:
        raise InvalidSetting(f"{path} has no users; add one with `pocketmq console user add NAME --users {path}`")
    return users


def write_users(files: Files, path: Path, users: Iterable[User]) -> None:
    lines = [f"{user.name}:{user.role.value}:{user.secret}\n" for user in users]
    write_atomically(files, path, (_HEAD + "".join(lines)).encode())


def new_user(name: str, role: Role, password: str) -> User:
    return User(_checked_name(name), role, hash_password(password))


def _user(line: str, where: str) -> User:
    name, _, rest = line.partition(":")
    role, _, secret = rest.partition(":")
    parts = secret.split("$")
    if role not in list(Role) or len(parts) != 6 or parts[0] != "scrypt":
        raise InvalidSetting(f"{where}: expected NAME:operator|viewer:scrypt$n$r$p$salt$hash")
    try:
        n, r, p = map(int, parts[1:4])
        salt, made = bytes.fromhex(parts[4]), bytes.fromhex(parts[5])
    except ValueError as error:
        raise InvalidSetting(f"{where}: invalid hash: {error}") from error
    is_valid_hash = n > 1 and n & (n - 1) == 0 and r > 0 and p > 0 and 128 * n * r * p <= MAX_MEMORY // 2
    if not is_valid_hash or not salt or len(made) != HASH_BYTES:
        raise InvalidSetting(f"{where}: invalid hash; create it again with `pocketmq console user add`")
    return User(_checked_name(name), Role(role), secret)


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=n, r=r, p=p, maxmem=MAX_MEMORY, dklen=HASH_BYTES)


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidSetting(f"invalid user name {name!r}: a name has 1 to 64 letters, digits, '_', '.', '@' or '-'")
    return name


CHECK_EVERY_S: Final = 1.0
"""The console checks for changes of the file at most this often, and at every login."""


class UsersFile:
    """The users of a file, reloaded after changes. Without a file, no login is required."""

    def __init__(self, files: Files, path: Path | None, clock: Clock) -> None:
        """InvalidSetting if the file cannot be read, is invalid, or has no users."""
        self._files = files
        self._path = path
        self._clock = clock
        self._status = self._file_status()
        self._users: Mapping[str, User] = {} if path is None else read_users(files, path)
        self._checked_at = clock.monotonic()
        self._problem = ""

    @property
    def is_login_needed(self) -> bool:
        return self._path is not None

    def find(self, name: str) -> User | None:
        """A user for a login, after a check for changes of the file."""
        self._reload_if_changed()
        return self._users.get(name)

    def has(self, user: User) -> bool:
        """Whether a logged-in user is still in the file with the same password and role."""
        if self._clock.monotonic() - self._checked_at >= CHECK_EVERY_S:
            self._reload_if_changed()
        return self._users.get(user.name) == user

    def _reload_if_changed(self) -> None:
        self._checked_at = self._clock.monotonic()
        status = self._file_status()
        if self._path is None or (status == self._status and not self._problem):
            return
        self._status = status
        try:
            self._users = read_users(self._files, self._path)
        except InvalidSetting as error:
            self._reject_all(str(error))
        else:
            self._problem = ""
            log.info("reloaded the users file %s: %s", self._path, ", ".join(self._users))

    def _reject_all(self, why: str) -> None:
        self._users = {}
        if why != self._problem:
            log.error("cannot reload the users file; all sessions ended and logins are rejected: %s", why)
        self._problem = why

    def _file_status(self) -> FileStatus | None:
        try:
            return None if self._path is None else self._files.status(self._path)
        except OSError:  # reading the file reports it
            return None


COOKIE: Final = "pocketmq_console"


class Session(msgspec.Struct, frozen=True):
    """The session of one browser, without a `user` if no login is required."""

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
    """Open sessions. The oldest ends when there are too many, and those of a user who was removed or changed."""

    def __init__(
        self, clock: Clock, session_s: float, max_sessions: int, is_valid: Callable[[User], bool] = lambda _: True
    ) -> None:
        self._clock = clock
        self._is_valid = is_valid
        self._session_s = session_s
        self._max_sessions = max_sessions
        self._key = secrets.token_bytes(32)
        self._open: dict[str, Session] = {}
        self._messages: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, user: User | None) -> Session:
        """Start a session with a new id: the id from before a login is never reused."""
        while len(self._open) >= self._max_sessions:
            self.end(next(iter(self._open.values())))
        session = Session(secrets.token_urlsafe(32), user, self._clock.monotonic() + self._session_s)
        self._open[session.session_id] = session
        return session

    def find(self, session_id: str | None) -> Session | None:
        found = self._open.get(session_id or "")
        if found is None:
            return None
        is_over = found.expires <= self._clock.monotonic()
        if is_over or (found.user is not None and not self._is_valid(found.user)):
            self.end(found)
            return None
        return found

    def end(self, session: Session) -> None:
        self._open.pop(session.session_id, None)
        self._messages.pop(session.session_id, None)

    def set_message(self, session: Session, text: str) -> None:
        """A message for the next page: the result of an action."""
        self._messages[session.session_id] = text

    def pop_message(self, session: Session) -> str:
        return self._messages.pop(session.session_id, "")

    def token(self, session: Session) -> str:
        return hmac.new(self._key, session.session_id.encode(), "sha256").hexdigest()

    def is_token(self, session: Session, token: str) -> bool:
        return hmac.compare_digest(self.token(session).encode(), token.encode())


WINDOW_S: Final = 60.0
MAX_ADDRESSES: Final = 1_000
"""The limit on recorded addresses; the least recently used ones are dropped."""
MAX_WAITING: Final = 64
"""The limit on attempts that wait for a password check; further ones are rejected."""
MAX_NAME_CHARS: Final = 64
IPV6_CLIENT_BITS: Final = 64
"""The prefix of IPv6 addresses that one client can choose from."""

Key = tuple[str, str]
"""An address with a user who has logged in from it before, or with an empty name."""


class Attempt:
    """A running login. The password check sets `is_right`."""

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
    """The attempts of one address."""

    __slots__ = ("failed", "quiet_until", "running", "turn")

    def __init__(self) -> None:
        self.failed: deque[float] = deque()
        self.running = 0
        self.quiet_until = 0.0
        """No further rejection is logged before this time."""
        self.turn = asyncio.Lock()

    def count(self, now: float) -> int:
        while self.failed and self.failed[0] <= now - WINDOW_S:
            self.failed.popleft()
        return len(self.failed) + self.running


class LoginAttempts:
    """Limits and orders login attempts. Two passwords are checked at a time, one of them of a known user."""

    def __init__(self, clock: Clock, max_failures: int) -> None:
        self._clock = clock
        self._max_failures = max_failures
        self._buckets: dict[Key, _Bucket] = {}
        self._known: dict[Key, None] = {}
        self._waiting = 0
        self._checks = {False: asyncio.Semaphore(1), True: asyncio.Semaphore(1)}

    def begin(self, peer: str, name: str) -> Attempt | None:
        """None if the address had too many failed logins in the last minute, or too many attempts wait."""
        host, short = _host(peer), name[:MAX_NAME_CHARS]
        key = (host, short) if (host, short) in self._known else (host, "")
        bucket = self._buckets.pop(key, None) or _Bucket()
        self._drop_idle()
        self._buckets[key] = bucket  # keep least recently used order
        now = self._clock.monotonic()
        if bucket.count(now) >= self._max_failures:
            self._log_rejection(bucket, host, now, f"{self._max_failures} logins failed or are being checked")
            return None
        if self._waiting >= MAX_WAITING and not key[1]:
            self._log_rejection(bucket, host, now, f"{MAX_WAITING} other logins are waiting")
            return None
        bucket.running += 1
        return Attempt(host, short, key)

    @asynccontextmanager
    async def turn(self, attempt: Attempt) -> AsyncIterator[None]:
        """Wait for the password check: one per address at a time, so that no address waits for all attempts of another."""
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

    def _log_rejection(self, bucket: _Bucket, host: str, now: float, why: str) -> None:
        if now < bucket.quiet_until:
            return
        bucket.quiet_until = now + WINDOW_S
        log.warning("rejecting logins from %s for up to a minute: %s", host, why)

    def _drop_idle(self) -> None:
        idle = [key for key, bucket in self._buckets.items() if not bucket.running]
        for key in idle[: max(0, len(self._buckets) - MAX_ADDRESSES + 1)]:
            del self._buckets[key]


def _host(peer: str) -> str:
    """The address of a client; for IPv6 its network."""
    try:
        address = ip_address(peer)
    except ValueError:
        return peer
    if not isinstance(address, IPv6Address):
        return peer
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> IPV6_CLIENT_BITS << IPV6_CLIENT_BITS))
