"""The options of all clients and of producers, with RocketMQ's defaults.

Options are the keyword arguments of the clients: `AsyncProducer("10.0.0.1:9876", group="orders", retries=3)`. An unknown name is
rejected with a suggestion, and an invalid value before anything is sent.
"""

import ssl
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, TypeVar

import msgspec

from pocketmq.client.hooks import RpcHook
from pocketmq.codes import Compression
from pocketmq.errors import InvalidSetting, UsageError
from pocketmq.model.names import AUTO_CREATE_TOPIC, TRACE_TOPIC, parse_group, parse_topic, suggestion, wrap
from pocketmq.protocol.compression import LEVEL, MIN_BODY_BYTES, compress
from pocketmq.protocol.signing import Credentials

S = TypeVar("S", bound="ClientSettings")
Seconds = TypeVar("Seconds", float, float | None)

KIB = 1024
MIB = 1024 * KIB

DEFAULT_INSTANCE = "DEFAULT"
"""This instance name stands for a name of the process."""
DEFAULT_PRODUCER_GROUP = "DEFAULT_PRODUCER"

_MAY_BE_ZERO = frozenset({"linger_ms", "retries", "compression_level", "brokers_good_ms"})
_LARGEST = 2**31 - 1
"""Java's clients use 32-bit numbers, and timers of the event loop cannot wait much longer."""
_AT_MOST = {"linger_ms": 30_000, "start_at": 253_402_300_799_999}
"""RocketMQ's limit for `batchMaxDelayMs`, and the end of the year 9999. The limit of other numbers is `_LARGEST`."""
_CHECKED_ELSEWHERE = frozenset({"workers"})
"""Checked by the class that defines them."""
_TYPE_NAMES: dict[type, str] = {bool: "True or False", int: "a whole number", str: "a text"}
_OPTIONAL_TYPES: dict[str, tuple[type, str]] = {
    "namespace": (str, "a text"),
    "client_ip": (str, "a text"),
    "unit_name": (str, "a text"),
    "credentials": (Credentials, "Credentials(access_key, secret)"),
}
"""The types of options with None as a second choice."""


def checked_seconds(timeout_s: Seconds) -> Seconds:
    """`timeout_s` if it is a number of seconds or None; UsageError otherwise, also for NaN and infinity."""
    if timeout_s is None or (isinstance(timeout_s, int | float) and -_LARGEST <= timeout_s <= _LARGEST):
        return timeout_s
    raise UsageError(f"timeout_s = {timeout_s!r} must be a number of seconds up to {_LARGEST}, such as 3 or 0.5")


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
    compression: Compression | str
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
    """The options of all clients."""

    # connection and identity
    name_servers: str | Sequence[str] | None = None
    """The addresses of the name servers: `"a:9876;b:9876"` or a list. None: the environment variable `NAMESRV_ADDR`."""
    namespace: str | None = None
    """Prefix all topics and groups with this namespace. It does not appear in the names that you use."""
    credentials: Credentials | None = None
    """`Credentials(access_key, secret)`. The client signs every request with them."""
    tls: bool | ssl.SSLContext = False
    """True, or a context from `client_context`: encrypt connections and verify the certificate of the server."""
    client_ip: str | None = None
    """The address in client ids and message ids. None: the address by which this machine reaches others."""
    instance_name: str = DEFAULT_INSTANCE
    """Clients with the same instance name share connections. `DEFAULT` stands for a name of this process. Clients that
    cannot share connections (another event loop, name server, account or TLS setting) get `#2`, `#3` … appended."""
    unit_name: str | None = None
    """RocketMQ's unit name, a part of the client id."""
    unit_mode: bool = False
    """Report to brokers that this client belongs to a unit."""

    # time
    call_timeout_ms: int = 3_000
    """The timeout of a request to a name server or broker."""
    connect_timeout_ms: int = 3_000
    """The timeout of a connection attempt."""
    route_poll_ms: int = 30_000
    """How often the client requests the routes of its topics again."""
    heartbeat_ms: int = 30_000
    """How often the client sends a heartbeat to brokers. A broker removes a client after 120 s without one."""
    stop_timeout_ms: int = 3_000
    """How long `stop()` waits for running sends and listeners."""

    # bounds
    idle_route_polls: int = 20
    """The client drops the route of a topic that was not used during this many polls."""
    max_in_flight_calls: int = 65_535
    """The limit on unanswered requests of one connection. One more raises `TooManyCalls`."""

    # trace
    trace: bool = False
    """Write RocketMQ's trace records of each message to the trace topic."""
    trace_topic: str = TRACE_TOPIC
    """The topic of trace records."""
    max_waiting_traces: int = 2_048
    """The limit on trace records that wait to be sent. The client drops and counts further ones."""

    rpc_hook: RpcHook | None = None
    """An `RpcHook`. It sees every request to a name server or broker, and the response."""

    def __post_init__(self) -> None:
        _check_values(self)
        if not isinstance(self.rpc_hook, RpcHook | None):
            raise InvalidSetting(
                f"option rpc_hook = {self.rpc_hook!r} must be an object of a class that inherits from RpcHook"
            )
        if self.route_poll_ms < 1_000 or not 1_000 <= self.heartbeat_ms <= 60_000:
            raise InvalidSetting(
                "route_poll_ms must be at least 1000, and heartbeat_ms from 1000 to 60000: brokers remove a "
                "client after 120000 ms without a heartbeat"
            )
        parse_topic(self.trace_topic)
        if not self.instance_name or "@" in self.instance_name:
            raise InvalidSetting(
                f"instance_name {self.instance_name!r} is empty or contains '@', the separator in client ids"
            )

    @property
    def keeps_default_name(self) -> bool:
        """Whether `DEFAULT` is used as it is, instead of a name of the process."""
        return False

    @property
    def instance_mark(self) -> str:
        """Appended to the default instance name, so that clients of this kind do not share connections with others."""
        return ""


class ProducerSettings(ClientSettings, frozen=True, kw_only=True):
    """The options of a producer."""

    group: str = DEFAULT_PRODUCER_GROUP
    """The producer group. Transactions need a group of their own: brokers send checks to any producer of the group."""

    # sending
    send_timeout_ms: int = 3_000
    """The time limit of one send, all attempts together."""
    retries: int = 2
    """Attempts after the first one, on another broker if there is one."""
    retry_when_not_stored: bool = False
    """Retry also when the broker stored the message with less safety than configured, such as FLUSH_DISK_TIMEOUT. The
    message may then exist twice."""
    retry_when_busy: bool = False
    """Retry also when the broker answers "broker busy", after the delay that it asks for."""
    avoid_slow_brokers: bool = False
    """Avoid brokers for a while after a slow or failed send, by RocketMQ's latency table."""

    # messages
    max_message_bytes: int = 4 * MIB
    """The client refuses a larger body before it sends anything."""
    compress_over_bytes: int = MIN_BODY_BYTES
    """The client compresses bodies of at least this size."""
    compression: Compression = Compression.ZLIB
    """`"zlib"`, `"lz4"` or `"zstd"`. The last two need `pocketmq[compression]` here and at the consumers."""
    compression_level: int = LEVEL
    """The level of zlib, from 0 to 9."""
    template_topic: str = AUTO_CREATE_TOPIC
    """The topic whose settings a broker copies when a send creates a topic."""
    new_topic_queues: int = 4
    """Queues per broker of a topic that a send creates."""

    # batches
    linger_ms: int = 0
    """How long a message may wait for further messages to the same queue, to be sent as one batch. 0: no batching."""
    batch_bytes: int = 32 * KIB
    """A batch of this size is sent at once."""

    # bounds
    max_in_flight_messages: int = 10_000
    """The limit on messages that were accepted and are not yet answered. One more waits."""
    max_in_flight_bytes: int = 100 * MIB
    """The same limit in bytes of their bodies."""
    max_waiting_requests: int = 10_000
    """The limit on requests (`request`) without a reply."""
    max_waiting_checks: int = 2_000
    """The limit on transaction checks that wait for `check`. Brokers repeat a check that was dropped."""

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_group(wrap(self.namespace, self.group))
        parse_topic(self.template_topic)
        compress(b"", self.compression_kind, self.compression_level)  # says which level or library is missing
        if self.batch_bytes > self.max_message_bytes:
            raise InvalidSetting(f"batch_bytes={self.batch_bytes} is above max_message_bytes={self.max_message_bytes}")

    @property
    def compression_kind(self) -> Compression:
        chosen: object = self.compression
        if isinstance(chosen, Compression):
            return chosen
        if isinstance(chosen, str) and chosen.upper() in Compression.__members__:
            return Compression[chosen.upper()]
        names = ", ".join(repr(kind.name.lower()) for kind in Compression)
        raise InvalidSetting(
            f"option compression = {self.compression!r} must be one of {names}, for example compression='zlib'"
        )


def settings_of(
    kind: type[S],
    name_servers: str | Sequence[str] | None,
    options: Mapping[str, Any],
    arguments: Sequence[str] = ("hooks",),
) -> S:
    """The settings from the arguments of a client. Raises InvalidSetting.

    `arguments` are further keyword arguments of the client, for suggestions.
    """
    known = kind.__struct_fields__
    for name in options:
        if name not in known:
            raise InvalidSetting(f"there is no option {name!r}; {suggestion(name, (*known, *arguments))}")
    return kind(name_servers=name_servers, **options)


def _check_values(settings: ClientSettings) -> None:
    """Check types by the defaults, and that numbers are above 0 unless 0 is allowed."""
    kind = type(settings)
    for name, default in zip(kind.__struct_fields__, kind.__struct_defaults__, strict=True):
        value = getattr(settings, name)
        if name == "tls":
            if not isinstance(value, bool | ssl.SSLContext):
                raise InvalidSetting(f"option tls = {value!r} must be True, False or a context of `client_context`")
            continue
        if name in _CHECKED_ELSEWHERE:
            continue
        if name in _OPTIONAL_TYPES and value is not None and not isinstance(value, _OPTIONAL_TYPES[name][0]):
            shown = "…" if name == "credentials" else repr(value)
            raise InvalidSetting(f"option {name} = {shown} must be {_OPTIONAL_TYPES[name][1]}, or None")
        expected = type(default)
        example = f", for example {name}={default!r}" if default and expected is not bool else ""
        if expected in _TYPE_NAMES and type(value) is not expected:
            raise InvalidSetting(f"option {name} = {value!r} must be {_TYPE_NAMES[expected]}{example}")
        if expected is int and value < (0 if name in _MAY_BE_ZERO else 1):
            raise InvalidSetting(
                f"option {name} = {value} must be {'0 or above' if name in _MAY_BE_ZERO else 'above 0'}{example}"
            )
        is_bounded = expected is int or name in _AT_MOST
        if is_bounded and type(value) is int and value > (most := _AT_MOST.get(name, _LARGEST)):
            raise InvalidSetting(f"option {name} = {value} must be {most} at most{example}")
