"""The check of every request: who sends it, and whether they may. One implementation for all servers.

    request ── AccessKey? ── known? ── from an allowed address? ── signature right? ──► account ── administrator ──────────► served
                  │ no         │ no          │ no                      │ no                └─ a right to each thing it does ─┘
                  └────────────┴─────────────┴─────────────────────────┴──────────────────────── │ no ──► NO_PERMISSION (16)

The words of refusals are those of Apache RocketMQ 5.3, which its clients show. The signature covers the values of all ext fields and the
body: not the code, nor the time. So whoever can read the line can send a request again; TLS keeps them from reading it.
"""

import hmac
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from pocketmq.access.accounts import Account, Accounts, Actions
from pocketmq.access.accounts_file import FollowedAccounts
from pocketmq.access.refusals import AuthenticationSettings, Cause, Refusals
from pocketmq.clock import Clock
from pocketmq.codes import RequestCode
from pocketmq.errors import ConnectionLost, NoPermission
from pocketmq.files import Files
from pocketmq.model.access import Access, Accesses, Action, FindNames, Resource
from pocketmq.net.peer import Peer
from pocketmq.protocol.api import API
from pocketmq.protocol.command import Command
from pocketmq.protocol.pending_calls import failure_reply
from pocketmq.protocol.signing import ACCESS_KEY, SIGNATURE, Credentials, verify

log = logging.getLogger("pocketmq.access")

SIGNATURE_CHARS: Final = 28
"""20 bytes as base64. What is of another length is wrong without a look at the body."""
SHOWN_CHARS: Final = 80
"""How much of a name that a stranger sent is repeated."""


class _Wanted(NamedTuple):
    """One thing that a request does, ready to be looked up: `field` is the name of the ext field that names the resource."""

    resource: Resource
    actions: Actions
    field: str | None
    find: FindNames | None

    def names(self, command: Command) -> Iterable[str | None]:
        """What it does it to; None for all there is."""
        if self.find is not None:
            return self.find(command)
        return ((command.ext or {}).get(self.field) if self.field else None,)


class Authentication:
    """Checks requests for one server. `access` is its table of what each request does."""

    def __init__(
        self,
        accounts: Accounts,
        access: Mapping[RequestCode, Accesses],
        clock: Clock,
        settings: AuthenticationSettings | None = None,
        followed: FollowedAccounts | None = None,
    ) -> None:
        """`followed`: the file that `accounts` are from, if it is to be read again when it changes."""
        self._accounts = accounts
        self._wanted = {int(code): [_wanted(code, one) for one in row] for code, row in access.items()}
        self._clock = clock
        self._settings = settings or AuthenticationSettings()
        self._clients: WeakKeyDictionary[Peer, Account] = WeakKeyDictionary()
        self._followed = followed
        self.refusals = Refusals(self._settings)

    def follow(self) -> None:
        """Use the accounts that the file has now. Connections of clients whose account has changed are closed: pulls may wait on them."""
        if self._followed is None:
            return
        gone = {account.access_key for account in self._followed.look()}
        self._accounts = self._followed.now
        for peer, account in list(self._clients.items()) if gone else ():
            if account.access_key in gone:
                peer.close(ConnectionLost(f"the account {account.access_key} was changed or removed"))

    def credentials_of(self, access_key: str) -> Credentials | None:
        """Of an account that the file has now."""
        account = self._accounts.get(access_key)
        return None if account is None else account.credentials

    def check(self, peer: Peer, command: Command) -> None:
        """NoPermission, unless the request is signed by somebody who may ask for it."""
        if peer.connection.ending is not None:
            raise ConnectionLost("this line is being closed")
        account = self._account(peer, command)
        peer.connection.authenticated = True
        if command.code == RequestCode.HEART_BEAT:
            self._clients[peer] = account
        if account.is_admin:
            return
        for wanted in self._wanted.get(command.code, ()):  # a code without a row is refused by the dispatcher
            for name in wanted.names(command):
                if not account.may(wanted.resource, wanted.actions, name):
                    why = _no_right(account, wanted.resource, name, peer.address.host)
                    raise self._refusal(peer, command, Cause.RIGHT, account.access_key, why)

    def may_send_to(self, peer: Peer, topic: str) -> bool:
        """Whether the client at this line, known by its last heartbeat, may send to a topic."""
        account = self._clients.get(peer)
        return account is not None and account.may(Resource.TOPIC, (Action.PUB,), topic)

    def may_read_metrics(self, host: str, access_key: str, secret: str) -> bool:
        """Whether this is an account, with its secret, that may look at the cluster from there. What fails counts as of a request."""
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
            self.refusals.note(host, cause, shown, f"a request for metrics{by}: {cause}", self._clock.monotonic())
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
        told = f"request {command.code}{by}: {why.encode('unicode_escape').decode()}"
        if self.refusals.note(peer.address.host, cause, who, told, self._clock.monotonic()):
            peer.answer(command, failure_reply(command, refusal))
            limit = self._settings.max_failures
            peer.close(ConnectionLost(f"more than {limit} requests from {peer.address.host} failed to authenticate"))
        return refusal


def authentication_by(
    path: Path | None,
    files: Files,
    access: Mapping[RequestCode, Accesses],
    clock: Clock,
    settings: AuthenticationSettings,
) -> Authentication | None:
    """The check by the file of accounts at `path`, which is read now; None when there is none."""
    if path is None:
        return None
    followed = FollowedAccounts(files, path, os.environ)
    log.info("requests must be signed by one of %d accounts in %s", len(followed.now), path)
    return Authentication(followed.now, access, clock, settings, followed)


def _wanted(code: RequestCode, access: Access) -> _Wanted:
    actions = (access.action, *access.or_to)
    if not isinstance(access.named_by, str):
        return _Wanted(access.resource, actions, None, access.named_by)
    header = API[code].request
    at = header.__struct_fields__.index(access.named_by)
    return _Wanted(access.resource, actions, header.__struct_encode_fields__[at], None)


def _no_right(account: Account, resource: Resource, name: str | None, host: str) -> str:
    shown = (name or "*")[:SHOWN_CHARS]
    return f"User:{account.access_key} has no permission to access {resource}:{shown} from {host}, no matched policies."
