"""The client that makes a call: the metadata of a request, and its signature, which must be that of an account.

    authorization ── MQv2-HMAC-SHA1 Credential=KEY, SignedHeaders=x-mq-date-time, Signature=HEX
                     HEX is the HMAC-SHA1 of x-mq-date-time; its case does not count, nor the time itself, which is local
    x-mq-client-id ─ names the client; required
    x-mq-language ── a language of the remoting protocol; others count as OTHER

Requests to brokers are signed again, with the account of the caller, so brokers apply the permissions of that account themselves.
What needs no broker, such as a cached route, is checked here.
"""

import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from pocketmq.access.accounts import Account, Action, Resource
from pocketmq.access.authentication import SHOWN_CHARS, Authentication, Cause, authentication_by
from pocketmq.clock import Clock
from pocketmq.codes import Language
from pocketmq.files import Files
from pocketmq.net import Address
from pocketmq.protocol.signing import Credentials
from pocketmq.proxy.messages import Code
from pocketmq.proxy.settings import ProxySettings
from pocketmq.proxy.statuses import Refused

MAX_ID_CHARS: Final = 255
_AUTHORIZATION: Final = re.compile(
    r"MQv2-HMAC-SHA1 +Credential=([^,/]*)[^,]*, *SignedHeaders=x-mq-date-time, *Signature=([0-9A-Fa-f]*)"
)
_PEER: Final = re.compile(r"ipv[46]:(.*):(\d+)")


class Context(Protocol):
    """What is used of gRPC's context of a call."""

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]] | None: ...
    def peer(self) -> str: ...
    def time_remaining(self) -> float | None: ...


class Caller(NamedTuple):
    """One client, as its call describes it."""

    client_id: str
    language: Language
    version: str
    address: Address
    account: Account | None
    credentials: Credentials | None
    """Those of requests to brokers."""
    time_left_s: float | None

    @property
    def key(self) -> tuple[str, str]:
        """Clients of different accounts are different clients, even with the same id."""
        return self.client_id, self.account.access_key if self.account else ""

    def require(self, resource: Resource, name: str, *actions: Action) -> None:
        """Refused if the account of the caller has none of these permissions."""
        if self.account is not None and not self.account.may(resource, actions, name):
            wanted = " or ".join(actions)
            raise Refused(
                Code.UNAUTHORIZED,
                f"User:{self.account.access_key} has no permission to access {resource}:{name} from {self.address.host}: "
                f"it needs {wanted}",
            )


class Callers:
    """Reads and checks the metadata of all calls."""

    def __init__(self, settings: ProxySettings, files: Files, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self.authentication = authentication_by(settings.accounts, files, {}, clock, settings.authentication)

    def follow(self) -> None:
        """Read changed accounts again."""
        if self.authentication is not None:
            self.authentication.follow()

    def of(self, context: Context, peers: Mapping[int, Address]) -> Caller:
        """The caller; Refused if its metadata are incomplete or its signature is wrong. `peers` are the addresses of clients
        whose connections another connection forwards, by the port of that.
        """
        metadata = dict(context.invocation_metadata() or ())
        address = _address(context.peer())
        if peers and address.is_loopback:
            address = peers.get(address.port, address)
        account = None if self.authentication is None else self._account(self.authentication, metadata, address)
        client_id = _text(metadata, "x-mq-client-id")
        if not client_id.strip():
            raise Refused(Code.CLIENT_ID_REQUIRED, "the metadata have no x-mq-client-id")
        if len(client_id) > MAX_ID_CHARS:
            raise Refused(Code.BAD_REQUEST, f"x-mq-client-id has more than {MAX_ID_CHARS} characters")
        language = _text(metadata, "x-mq-language").upper()
        return Caller(
            client_id,
            Language[language] if language in Language.__members__ else Language.OTHER,
            _text(metadata, "x-mq-client-version"),
            address,
            account,
            self._settings.credentials if account is None else account.credentials,
            context.time_remaining(),
        )

    def _account(self, authentication: Authentication, metadata: dict[str, str | bytes], address: Address) -> Account:
        def refusal(cause: Cause, who: str, why: str) -> Refused:
            logged = why.encode("unicode_escape").decode()
            authentication.refusals.record(address.host, cause, who, f"a gRPC call: {logged}", self._clock.monotonic())
            return Refused(Code.UNAUTHORIZED, why)

        found = _AUTHORIZATION.fullmatch(_text(metadata, "authorization").strip())
        key, signature = (found[1].strip(), found[2].lower()) if found else ("", "")
        if not key:
            raise refusal(Cause.UNSIGNED, "", "username cannot be null.")
        shown = key[:SHOWN_CHARS]
        account = authentication.account_of(key)
        if account is None:
            raise refusal(Cause.UNKNOWN, shown, f"User:{shown} is not found.")
        if not account.may_come_from(address.host):
            raise refusal(Cause.SOURCE, shown, f"User:{shown} may not come from {address.host}.")
        if not hmac.compare_digest(signature, signature_of(_text(metadata, "x-mq-date-time"), account.credentials)):
            raise refusal(Cause.SIGNATURE, shown, "check signature failed.")
        return account


def signature_of(date_time: str, credentials: Credentials) -> str:
    """The signature of a call in lower case."""
    return hmac.digest(credentials.secret.encode(), date_time.encode(), "sha1").hex()


def require_topics(caller: Caller, topics: Iterable[str], *actions: Action) -> None:
    for topic in topics:
        caller.require(Resource.TOPIC, topic, *actions)


def _text(metadata: dict[str, str | bytes], name: str) -> str:
    value = metadata.get(name, "")
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


@lru_cache(maxsize=10_000)
def _address(peer: str) -> Address:
    """The address in gRPC's text for a peer, which may be quoted as in a URL."""
    found = _PEER.fullmatch(peer.replace("%5B", "[").replace("%5D", "]"))
    return Address(found[1].strip("[]"), int(found[2])) if found else Address("", 0)
