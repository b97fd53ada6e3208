"""Every option of a client, with RocketMQ's defaults where it has them.

Options are the keyword arguments of the clients: `AsyncProducer("10.0.0.1:9876", group="orders", retries=3)`. A name that is
none is refused with the nearest one that is; a value that can never work is refused before anything is sent.
"""

import ssl
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, TypeVar

import msgspec

from pocketmq.client.hooks import RpcHook
from pocketmq.errors import InvalidSetting
from pocketmq.model.flags import Compression
from pocketmq.model.names import AUTO_CREATE_TOPIC, TRACE_TOPIC, parse_group, parse_topic, suggestion, wrap
from pocketmq.protocol.compression import LEVEL, MIN_BODY_BYTES
from pocketmq.protocol.signing import Credentials

S = TypeVar("S", bound="ClientSettings")

KIB = 1024
MIB = 1024 * KIB

DEFAULT_INSTANCE = "DEFAULT"
"""The instance name that stands for: one for this process."""
DEFAULT_PRODUCER_GROUP = "DEFAULT_PRODUCER"

_MAY_BE_ZERO = frozenset({"linger_ms", "retries", "compression_level", "brokers_good_ms"})
_OF_SEVERAL_KINDS = frozenset({"workers"})
"""Checked by the settings that have them."""
_A_KIND: dict[type, str] = {bool: "True or False", int: "a whole number", str: "a text"}
_OR_NONE: dict[str, tuple[type, str]] = {
    "namespace": (str, "a text"),
    "client_ip": (str, "a text"),
    "unit_name": (str, "a text"),
    "credentials": (Credentials, "Credentials(access_key, secret)"),
}
"""What is None by default, and else of this kind."""


class ClientOptions(TypedDict, total=False):
    """The keyword arguments of every client beside `name_servers`; see `ClientSettings`."""

    namespace: str | None
    credentials: Credentials | None
    tls: bool | ssl.SSLContext
    client_ip: str | None
    instance_name: str
    unit_name: str | None
    unit_mode: bool
    call_timeout_ms: int
    connect_timeout_ms: int
    route_poll_ms: int
    heartbeat_ms: int
    idle_route_polls: int
    max_in_flight_calls: int
    stop_timeout_ms: int
    trace: bool
    trace_topic: str
    max_waiting_traces: int
    rpc_hook: RpcHook | None


class ProducerOptions(ClientOptions, total=False):
    """The keyword arguments of a producer; see `ProducerSettings`."""

    group: str
    send_timeout_ms: int
    retries: int
    retry_when_not_stored: bool
    retry_when_busy: bool
    avoid_slow_brokers: bool
    max_message_bytes: int
    compress_over_bytes: int
    compression: Compression
    compression_level: int
    template_topic: str
    new_topic_queues: int
    linger_ms: int
    batch_bytes: int
    max_in_flight_messages: int
    max_in_flight_bytes: int
    max_waiting_requests: int
    max_waiting_checks: int


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What all clients share."""

    # whom it talks to, and as whom
    name_servers: str | Sequence[str] | None = None
    """`"a:9876;b:9876"` or a list of such; None: the environment says, see `name_servers`."""
    namespace: str | None = None
    """Topics and groups are those of this namespace; users never see it in their names."""
    credentials: Credentials | None = None
    """Every request is signed with them."""
    tls: bool | ssl.SSLContext = False
    """True: the server's certificate must be signed by an authority that this system knows. For others, `client_context`."""
    client_ip: str | None = None
    """The address that client and message ids carry. None: the one by which this machine reaches others."""
    instance_name: str = DEFAULT_INSTANCE
    """Clients with the same one share their connections and appear as one client."""
    unit_name: str | None = None
    unit_mode: bool = False

    # time
    call_timeout_ms: int = 3_000
    connect_timeout_ms: int = 3_000
    route_poll_ms: int = 30_000
    heartbeat_ms: int = 30_000
    stop_timeout_ms: int = 3_000
    """How long stopping waits for what is under way, and for brokers to hear that this client leaves."""

    # bounds
    idle_route_polls: int = 20
    """The route of a topic that nobody asked for during so many polls is forgotten."""
    max_in_flight_calls: int = 65_535
    """Of one connection."""

    # trace
    trace: bool = False
    """Write what happens to each message to the trace topic."""
    trace_topic: str = TRACE_TOPIC
    max_waiting_traces: int = 2_048
    """Trace records that wait to be sent; more are dropped, and counted."""

    rpc_hook: RpcHook | None = None
    """Sees every request to a name server or broker, and its response."""

    def __post_init__(self) -> None:
        _check_values(self)
        if not isinstance(self.rpc_hook, RpcHook | None):
            raise InvalidSetting(
                f"option rpc_hook = {self.rpc_hook!r} must be an object of a class that inherits from RpcHook"
            )
        if self.route_poll_ms < 1_000 or not 1_000 <= self.heartbeat_ms <= 60_000:
            raise InvalidSetting(
                "route_poll_ms must be at least 1000, and heartbeat_ms from 1000 to 60000: brokers forget clients after 120000"
            )
        parse_topic(self.trace_topic)
        if not self.instance_name or "@" in self.instance_name:
            raise InvalidSetting(
                f"instance_name {self.instance_name!r} is empty or holds '@', which separates client ids"
            )

    @property
    def keeps_default_name(self) -> bool:
        """Whether the default instance name is used as it is, instead of standing for one of this process."""
        return False

    @property
    def instance_mark(self) -> str:
        """Behind the default instance name of this process: keeps clients of a kind apart from all others."""
        return ""


class ProducerSettings(ClientSettings, frozen=True, kw_only=True):
    """What a producer needs beside that."""

    group: str = DEFAULT_PRODUCER_GROUP

    # sending
    send_timeout_ms: int = 3_000
    """For one message, all its attempts together."""
    retries: int = 2
    """Attempts after the first one, at another broker where there is one."""
    retry_when_not_stored: bool = False
    """Try again, too, when a broker stored the message but not as safely as it should. It may be there twice then."""
    retry_when_busy: bool = False
    """Try again, too, when a broker refuses because it is busy, after the time that it asks for."""
    avoid_slow_brokers: bool = False
    """Keep away for a while from brokers that were slow or failed."""

    # messages
    max_message_bytes: int = 4 * MIB
    compress_over_bytes: int = MIN_BODY_BYTES
    compression: Compression = Compression.ZLIB
    compression_level: int = LEVEL
    template_topic: str = AUTO_CREATE_TOPIC
    """The topic after whose model a broker makes one that does not exist, if it may."""
    new_topic_queues: int = 4

    # batches
    linger_ms: int = 0
    """How long a message may wait for others to the same queue, to be sent with them. 0: not at all."""
    batch_bytes: int = 32 * KIB
    """A batch that has grown to this is sent at once."""

    # bounds
    max_in_flight_messages: int = 10_000
    max_in_flight_bytes: int = 100 * MIB
    """Messages that were handed over and are not done yet; one more waits until there is room."""
    max_waiting_requests: int = 10_000
    """Requests whose reply has not come."""
    max_waiting_checks: int = 2_000
    """Questions of brokers about undecided transactions that wait for their turn; a broker asks again."""

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_group(wrap(self.namespace, self.group))
        parse_topic(self.template_topic)
        if self.batch_bytes > self.max_message_bytes:
            raise InvalidSetting(f"batch_bytes={self.batch_bytes} is above max_message_bytes={self.max_message_bytes}")


def settings_of(
    kind: type[S],
    name_servers: str | Sequence[str] | None,
    options: Mapping[str, Any],
    arguments: Sequence[str] = ("hooks",),
) -> S:
    """The settings that a client was given as arguments; InvalidSetting says what is wrong with them.

    `arguments` are those that the client has beside its settings, which may be meant.
    """
    known = kind.__struct_fields__
    for name in options:
        if name not in known:
            raise InvalidSetting(f"there is no option {name!r}; {suggestion(name, (*known, *arguments))}")
    return kind(name_servers=name_servers, **options)


def _check_values(settings: ClientSettings) -> None:
    """Of the kind of their defaults, and numbers above 0 where 0 means nothing."""
    kind = type(settings)
    for name, default in zip(kind.__struct_fields__, kind.__struct_defaults__, strict=True):
        value = getattr(settings, name)
        if name == "tls":
            if not isinstance(value, bool | ssl.SSLContext):
                raise InvalidSetting(f"option tls = {value!r} must be True, False or a context of `client_context`")
            continue
        if name in _OF_SEVERAL_KINDS:
            continue
        if name in _OR_NONE and value is not None and not isinstance(value, _OR_NONE[name][0]):
            shown = "…" if name == "credentials" else repr(value)
            raise InvalidSetting(f"option {name} = {shown} must be {_OR_NONE[name][1]}, or None")
        wanted = type(default)
        example = f", for example {name}={default!r}" if default and wanted is not bool else ""
        if wanted in _A_KIND and type(value) is not wanted:
            raise InvalidSetting(f"option {name} = {value!r} must be {_A_KIND[wanted]}{example}")
        if wanted is int and value < (0 if name in _MAY_BE_ZERO else 1):
            raise InvalidSetting(
                f"option {name} = {value} must be {'0 or above' if name in _MAY_BE_ZERO else 'above 0'}{example}"
            )
