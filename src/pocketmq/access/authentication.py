"""Authentication and authorization of every request, for all servers.

    request ── AccessKey? ── known? ── allowed address? ── valid signature? ──► account ── administrator ──────────► served
                  │ no         │ no          │ no                │ no             └─ permission for each action ─────┘
                  └────────────┴─────────────┴───────────────────┴──────────────────── │ no ──► NO_PERMISSION (16)

Remarks are those of Apache RocketMQ 5.3, which its clients show. The signature covers the values of all ext fields and
the body, but not the request code or the time. So anyone who can read the traffic can repeat a request; TLS prevents
that.

Rejected requests are counted, logged once, and limited per address:

    failed authentication ──► counted per address ──┬─ up to `max_failures` within `window_s` ──► rejected
                                                    └─ more ──► rejected, and the connection is closed
    known account without permission ─────────────────────────► rejected; it may have other permissions

Only the connection of the request is closed; others from the same address, such as a proxy, stay open.
"""

import hmac
import logging
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from pocketmq.access.accounts import Access, Accesses, Account, Accounts, Action, Actions, FindNames, Resource
from pocketmq.access.accounts_file import FollowedAccounts
from pocketmq.access.settings import AuthenticationSettings
from pocketmq.clock import Clock
from pocketmq.codes import RequestCode
from pocketmq.errors import ConnectionLost, NoPermission
from pocketmq.files import Files
from pocketmq.net import Peer
from pocketmq.protocol.api import request_header
from pocketmq.protocol.command import Command
from pocketmq.protocol.pending_calls import failure_reply
from pocketmq.protocol.signing import ACCESS_KEY, SIGNATURE, Credentials, verify

MAX_LOGGED: Final = 16
"""Limit on logged causes per address and window; all are counted."""


class Cause(StrEnum):
    UNSIGNED = "Unsigned"
    UNKNOWN = "UnknownAccessKey"
    SOURCE = "WrongSource"
    SIGNATURE = "WrongSignature"
    RIGHT = "NoRight"


class _Failures:
    __slots__ = ("count", "logged", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.count = 0
        self.logged: set[tuple[Cause, str]] = set()


class Refusals:
    """Counts rejected requests. Callers pass the monotonic time."""

    def __init__(self, settings: AuthenticationSettings) -> None:
        self._settings = settings
        self._addresses: dict[str, _Failures] = {}
        self.counts: Counter[Cause] = Counter()
        self.connections_closed = 0

    def __len__(self) -> int:
        """The number of addresses with recent failures."""
        return len(self._addresses)

    def record(self, host: str, cause: Cause, who: str, why: str, now: float) -> bool:
        """Count and log a rejection. True if its connection must be closed."""
        self.counts[cause] += 1
        failures = self._of(host, now)
        self._log(failures, host, cause, who, why)
        if cause is Cause.RIGHT:
            return False
        failures.count += 1
        if failures.count <= self._settings.max_failures:
            return False
        self.connections_closed += 1
        return True

    def _of(self, host: str, now: float) -> _Failures:
        failures = self._addresses.get(host)
        if failures is not None and now - failures.since < self._settings.window_s:
            return failures
        self._addresses.pop(host, None)
        if len(self._addresses) >= self._settings.max_addresses:
            del self._addresses[next(iter(self._addresses))]
        failures = self._addresses[host] = _Failures(now)
        return failures

    def _log(self, failures: _Failures, host: str, cause: Cause, who: str, why: str) -> None:
        entry = cause, who
        if entry not in failures.logged and len(failures.logged) < MAX_LOGGED:
            failures.logged.add(entry)
            log.warning(
                "Rejected %s: %s; further rejections with this cause are not logged for %s s",
                host,
                why,
                self._settings.window_s,
            )

    def runtime_info(self) -> dict[str, str]:
        """Keys for `mqadmin brokerStatus` (code 28)."""
        counts = {f"refused{cause}": str(self.counts[cause]) for cause in Cause}
        return {**counts, "connectionsClosedByFailures": str(self.connections_closed)}


log = logging.getLogger("pocketmq.access")

SIGNATURE_CHARS: Final = 28
"""20 bytes as base64. A signature of another length is invalid; the body need not be checked."""
SHOWN_CHARS: Final = 80
"""Limit on the part of a received name that is logged."""


class _Requirement(NamedTuple):
    """One action of a request on a resource: `field` is the ext field with the name of the resource."""

    resource: Resource
    actions: Actions
    field: str | None
    find: FindNames | None

    def names(self, command: Command) -> Iterable[str | None]:
        """The resources that a request names; None for all."""
        if self.find is not None:
            return self.find(command)
        return ((command.ext or {}).get(self.field) if self.field else None,)


class Authentication:
    """Checks the requests of one server. `access` has the permissions for each request code."""

    def __init__(
        self,
        accounts: Accounts,
        access: Mapping[RequestCode, Accesses],
        clock: Clock,
        settings: AuthenticationSettings | None = None,
        followed: FollowedAccounts | None = None,
    ) -> None:
        """`followed`: the file of `accounts`, if it is read again after a change."""
        self._accounts = accounts
        self._requirements = {int(code): [_requirements(code, one) for one in row] for code, row in access.items()}
        self._clock = clock
        self._settings = settings or AuthenticationSettings()
        self._clients: WeakKeyDictionary[Peer, Account] = WeakKeyDictionary()
        self._followed = followed
        self.refusals = Refusals(self._settings)

    def follow(self) -> None:
        """Reload the accounts. Connections of changed accounts are closed, because pulls may wait on them."""
        if self._followed is None:
            return
        changed = {account.access_key for account in self._followed.reload()}
        self._accounts = self._followed.current
        for peer, account in list(self._clients.items()) if changed else ():
            if account.access_key in changed:
                peer.close(ConnectionLost(f"account {account.access_key} was changed or removed"))

    def account_of(self, access_key: str) -> Account | None:
        return self._accounts.get(access_key)

    def credentials_of(self, access_key: str) -> Credentials | None:
        account = self._accounts.get(access_key)
        return None if account is None else account.credentials

    def check(self, peer: Peer, command: Command) -> None:
        """NoPermission if the request is not signed by an account with the required permissions."""
        if peer.connection.ending is not None:
            raise ConnectionLost("this connection is closing")
        account = self._account(peer, command)
        peer.connection.authenticated = True
        if command.code == RequestCode.HEART_BEAT:
            self._clients[peer] = account
        if account.is_admin:
            return
        for requirement in self._requirements.get(command.code, ()):  # the dispatcher rejects a code without a row
            for name in requirement.names(command):
                if not account.may(requirement.resource, requirement.actions, name):
                    why = _no_right(account, requirement.resource, name, peer.address.host)
                    raise self._refusal(peer, command, Cause.RIGHT, account.access_key, why)

    def may_send_to(self, peer: Peer, topic: str) -> bool:
        """Whether the client of this connection, known by its last heartbeat, may send to a topic."""
        account = self._clients.get(peer)
        return account is not None and account.may(Resource.TOPIC, (Action.PUB,), topic)

    def may_read_metrics(self, host: str, access_key: str, secret: str) -> bool:
        """Whether this account may read the metrics from this address. Failures count like those of requests."""
        shown, cause = access_key[:SHOWN_CHARS], None
        account = self._accounts.get(access_key)
        known = "" if account is None else account.credentials.secret
        is_right = hmac.compare_digest(known.encode(), secret.encode())
        if not access_key:
            cause = Cause.UNSIGNED
        elif account is None:
            cause = Cause.UNKNOWN
        elif not is_right:
            cause = Cause.SIGNATURE
        elif not account.may_come_from(host):
            cause = Cause.SOURCE
        elif not account.may(Resource.CLUSTER, (Action.GET,), None):
            cause = Cause.RIGHT
        if cause is not None:
            by = f" by {shown.encode('unicode_escape').decode()!r}" if shown else ""
            self.refusals.record(host, cause, shown, f"a request for metrics{by}: {cause}", self._clock.monotonic())
        return cause is None

    def _account(self, peer: Peer, command: Command) -> Account:
        ext, host = command.ext or {}, peer.address.host
        key = ext.get(ACCESS_KEY)
        if not key:
            raise self._refusal(peer, command, Cause.UNSIGNED, "", "username cannot be null.")
        shown = key[:SHOWN_CHARS]
        account = self._accounts.get(key)
        if account is None:
            raise self._refusal(peer, command, Cause.UNKNOWN, shown, f"User:{shown} is not found.")
        if not account.may_come_from(host):
            raise self._refusal(peer, command, Cause.SOURCE, shown, f"User:{shown} may not come from {host}.")
        is_signed = len(ext.get(SIGNATURE, "")) == SIGNATURE_CHARS
        if not is_signed or not verify(ext, command.body, account.credentials.secret, command.version):
            raise self._refusal(peer, command, Cause.SIGNATURE, shown, "check signature failed.")
        return account

    def _refusal(self, peer: Peer, command: Command, cause: Cause, who: str, why: str) -> NoPermission:
        refusal = NoPermission(why)
        by = f" by {who!r}" if who else ""
        logged = f"request {command.code}{by}: {why.encode('unicode_escape').decode()}"
        if self.refusals.record(peer.address.host, cause, who, logged, self._clock.monotonic()):
            peer.answer(command, failure_reply(command, refusal))
            limit = self._settings.max_failures
            peer.close(ConnectionLost(f"more than {limit} failed authentications of {peer.address.host}"))
        return refusal


def authentication_by(
    path: Path | None,
    files: Files,
    access: Mapping[RequestCode, Accesses],
    clock: Clock,
    settings: AuthenticationSettings,
) -> Authentication | None:
    """The authentication with the accounts in the file at `path`, which is read now; None without a file."""
    if path is None:
        return None
    followed = FollowedAccounts(files, path, os.environ)
    log.info("Authentication is on: %d accounts in %s", len(followed.current), path)
    return Authentication(followed.current, access, clock, settings, followed)


def _requirements(code: RequestCode, access: Access) -> _Requirement:
    actions = (access.action, *access.or_to)
    if not isinstance(access.named_by, str):
        return _Requirement(access.resource, actions, None, access.named_by)
    header = request_header(code)
    at = header.__struct_fields__.index(access.named_by)
    return _Requirement(access.resource, actions, header.__struct_encode_fields__[at], None)


def _no_right(account: Account, resource: Resource, name: str | None, host: str) -> str:
    shown = (name or "*")[:SHOWN_CHARS]
    return f"User:{account.access_key} has no permission to access {resource}:{shown} from {host}, no matched policies."
