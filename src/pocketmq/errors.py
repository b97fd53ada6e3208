"""All errors, as one tree. Each class answers three questions:

    code        the response code on the wire
    retriable   may the same call succeed when it is repeated?
    fault       which side has to change something: caller, peer, network or server

    PocketMQError
    ├─ ProtocolError       bytes that violate the protocol
    ├─ UsageError          a value that can never work (also a ValueError)
    ├─ NetworkError        no response: connect failed, connection lost, timeout
    ├─ StoreError          the disk or the files on it
    └─ RemoteError         a failure response; one class per response code

A server raises the same classes that its clients get, so `error_for` is the only look-up by code.
"""

import sys
from enum import Enum
from typing import ClassVar, Final

from pocketmq.codes import ResponseCode


class Fault(Enum):
    """Which side has to change something before the call can succeed."""

    CALLER = "caller"
    PEER = "peer"
    NETWORK = "network"
    SERVER = "server"


class PocketMQError(Exception):
    """Base of all errors that PocketMQ raises on purpose."""

    code: ClassVar[ResponseCode] = ResponseCode.SYSTEM_ERROR
    retriable: ClassVar[bool] = False
    fault: ClassVar[Fault] = Fault.SERVER

    def __init_subclass__(
        cls, *, code: ResponseCode | None = None, retriable: bool | None = None, fault: Fault | None = None
    ) -> None:
        """The answers of a class; without one, that of its base applies."""
        super().__init_subclass__()
        if code is not None:
            cls.code = code
        if retriable is not None:
            cls.retriable = retriable
        if fault is not None:
            cls.fault = fault


class ProtocolError(PocketMQError, fault=Fault.PEER):
    """A peer sent bytes that are not RocketMQ's protocol, or exceed a limit of it."""


class UnreadableMessage(ProtocolError):
    """A message whose body cannot be decoded: damaged, wrong compression, or an invalid inner batch.

    Another attempt reads the same bytes. Other messages are not affected.
    """


class HeaderError(ProtocolError):
    """A header field is missing or has the wrong type; the frame itself is valid."""


class BodyError(ProtocolError):
    """A body does not have the type of its request; the frame itself is valid."""


class UsageError(PocketMQError, ValueError, code=ResponseCode.INVALID_PARAMETER, fault=Fault.CALLER):
    """A value that can never work, found before anything was sent or written."""


class InvalidName(UsageError):
    """A topic, group, tag or namespace name breaks the rules."""


class InvalidMessage(UsageError, code=ResponseCode.MESSAGE_ILLEGAL):
    """A message that no broker accepts: empty, too large, or with a reserved or unsafe property."""


class InvalidExpression(UsageError, code=ResponseCode.SUBSCRIPTION_PARSE_FAILED):
    """A subscription expression that cannot be parsed."""


class InvalidSetting(UsageError):
    """A setting with an unknown name or an impossible value."""


class ImpossibleRequest(UsageError, code=ResponseCode.SYSTEM_ERROR):
    """A valid request that can never be executed. RocketMQ has no better code for it than 1."""


class WrongState(PocketMQError, RuntimeError, fault=Fault.CALLER):
    """Called in the wrong state: not started, closed, or inside a running event loop."""


class ProgramFailed(PocketMQError):
    """A child process did not become ready, or ended; its output is above."""


class PipelineFailed(PocketMQError):
    """A Spark query failed. The text is its first sentence, the cause is Spark's error."""


class MissingLibrary(PocketMQError, ImportError, fault=Fault.CALLER):
    """A library is not installed, or has an unsuitable version; the text has the command that installs it."""


_LIBRARIES: Final = {
    "compression": ("lz4>=4.3", "zstandard>=0.22"),
    "spark": ("pyspark>=4.0", "pyarrow>=18", "numpy>=1.26"),
    "prometheus": ("prometheus-client>=0.20",),
    "console": ("starlette>=0.37", "uvicorn>=0.29", "jinja2>=3.1", "prometheus-client>=0.20"),
    "otel": ("opentelemetry-api>=1.24", "opentelemetry-sdk>=1.24", "opentelemetry-exporter-otlp-proto-http>=1.24"),
    "faststream": ("faststream[otel,prometheus]>=0.7.8,<0.8",),
    "taskiq": ("taskiq>=0.13,<0.14",),
    "celery": ("celery>=5.7,<5.8",),
    "fastapi": ("fastapi>=0.115",),
    "openlineage": ("openlineage-python>=1.40",),
}
"""The libraries of the extras in pyproject.toml."""


def install_command(extra: str) -> str:
    """The command that installs the libraries of an extra for this Python, for the text of a MissingLibrary.

    It names the libraries, because a package index may not have PocketMQ, or may have another version.
    """
    python = f"'{sys.executable}'" if " " in sys.executable else sys.executable
    return f"{python} -m pip install " + " ".join(f"'{library}'" for library in libraries_of(extra))


def libraries_of(extra: str) -> tuple[str, ...]:
    """The libraries of an extra, with their versions."""
    return _LIBRARIES[extra]


class Stuck(PocketMQError, AssertionError, fault=Fault.CALLER):
    """A test that cannot continue: all tasks wait for nothing, one spins, or a stalled call is never released."""


class NetworkError(PocketMQError, code=ResponseCode.SERVICE_NOT_AVAILABLE, retriable=True, fault=Fault.NETWORK):
    """No response arrived. The request may or may not have been executed."""


class ConnectFailed(NetworkError):
    """The connection could not be opened; nothing was sent."""


class ListenFailed(NetworkError, retriable=False, fault=Fault.CALLER):
    """Cannot listen on the address: in use, or not of this machine."""


class ConnectionLost(NetworkError):
    """The connection was lost before the response arrived."""


class CallTimedOut(NetworkError, TimeoutError):
    """The deadline passed before the response arrived."""


class TooManyCalls(NetworkError, code=ResponseCode.SYSTEM_BUSY, fault=Fault.CALLER):
    """The limit of calls in flight is reached; nothing was sent."""


class PartlySent(PocketMQError, fault=Fault.NETWORK):
    """Some messages of a call were stored and the others were not. The cause is the error of the others.

    `results` has one entry for each message, in the order of the call: where it was stored, or None.
    """

    def __init__(self, results: tuple[object | None, ...]) -> None:
        super().__init__(results)
        self.results = results

    def __str__(self) -> str:
        stored = sum(result is not None for result in self.results)
        return f"{stored} of {len(self.results)} messages were stored before one failed; `results` says which"


class LeaseLost(PocketMQError, fault=Fault.CALLER):
    """The leases of some messages are over, or the messages were acknowledged before. The others of the call are done.

    `message_ids` has the ids of these messages. They may be delivered again.
    """

    def __init__(self, message_ids: tuple[str, ...]) -> None:
        super().__init__(message_ids)
        self.message_ids = message_ids

    def __str__(self) -> str:
        shown = ", ".join(self.message_ids[:3]) + (", …" if len(self.message_ids) > 3 else "")
        return (
            f"{len(self.message_ids)} messages are not leased to this consumer any more ({shown}): their invisible time "
            "is over, or they were acknowledged before"
        )


class DataLost(PocketMQError):
    """Unread messages no longer exist: deleted, truncated, or of a re-created topic. The text names them."""


class StoreError(PocketMQError, code=ResponseCode.SERVICE_NOT_AVAILABLE):
    """The store cannot execute the request."""


class StoreLocked(StoreError, fault=Fault.CALLER):
    """Another process owns the folder."""


class StoreDamaged(StoreError):
    """A file violates its format; the text names file and offset."""


class StoreFull(StoreError, retriable=True):
    """No space left. Writing resumes when there is space again."""


class StoreBusy(StoreError, code=ResponseCode.SYSTEM_BUSY, retriable=True):
    """The store cannot accept more now: no prepared file, pool empty, or too much unsynced data."""


class QueueDamaged(StoreError, code=ResponseCode.SYSTEM_BUSY, retriable=True):
    """A consume queue entry does not match the log. The broker rebuilds it from the log; retry."""

    def __init__(self, topic: str, queue_id: int, offset: int) -> None:
        super().__init__(topic, queue_id, offset)  # the arguments, for pickle
        self.topic, self.queue_id, self.offset = topic, queue_id, offset

    def __str__(self) -> str:
        return (
            f"consume queue {self.topic}:{self.queue_id} is damaged at offset {self.offset}: "
            "its entries are being rebuilt from the log; retry in a moment"
        )


class PoolEmpty(StoreBusy):
    """The transient store pool is full."""


class SyncFailed(StoreError):
    """The disk failed to sync. Writes since the last successful sync are uncertain until recovery after a restart."""


class RemoteError(PocketMQError):
    """A failure response of a peer.

    `code` is the code of the class; `response_code` is the code on the wire, which may have no class.
    """

    def __init__(self, remark: str | None = None, response_code: int | None = None) -> None:
        super().__init__(remark, response_code)  # the arguments, for pickle
        self.response_code = int(self.code) if response_code is None else response_code
        self.remark = remark

    def __str__(self) -> str:
        return f"{self.label()}: {self.remark}" if self.remark else self.label()

    def label(self) -> str:
        """The name and number of the code: `TOPIC_NOT_EXIST (17)`."""
        try:
            return f"{ResponseCode(self.response_code).name} ({self.response_code})"
        except ValueError:
            return f"response code {self.response_code}"


class ServerFailed(RemoteError):
    """The peer had an internal error."""


class SystemBusy(RemoteError, code=ResponseCode.SYSTEM_BUSY, retriable=True):
    """Flow control: the broker is busy. The remark contains the cause and when to retry."""


class RequestNotSupported(RemoteError, code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED, fault=Fault.CALLER):
    """The peer does not know this request code."""


class FlushDiskTimeout(RemoteError, code=ResponseCode.FLUSH_DISK_TIMEOUT):
    """Stored, but not synced to disk before the timeout."""


class SlaveNotAvailable(RemoteError, code=ResponseCode.SLAVE_NOT_AVAILABLE):
    """Stored on the master, but no replica was available."""


class FlushSlaveTimeout(RemoteError, code=ResponseCode.FLUSH_SLAVE_TIMEOUT):
    """Stored on the master, but a replica did not confirm before the timeout."""


class MessageIllegal(RemoteError, code=ResponseCode.MESSAGE_ILLEGAL, fault=Fault.CALLER):
    """The broker will never accept this message."""


class ServiceNotAvailable(RemoteError, code=ResponseCode.SERVICE_NOT_AVAILABLE, retriable=True):
    """The broker cannot write now: it is shutting down, is a slave, or its disk is full."""


_UNSIGNED: Final = "username cannot be null."
"""RocketMQ's remark for a request without a signature."""
_UNSIGNED_ADVICE: Final = (
    "The request is not signed, and the server has accounts: give the client an access key and its secret"
)


class NoPermission(RemoteError, code=ResponseCode.NO_PERMISSION, fault=Fault.CALLER):
    """Refused by an access rule, a permission bit or a switch of the broker."""

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text} {_UNSIGNED_ADVICE}" if self.remark == _UNSIGNED else text


class TopicNotFound(RemoteError, code=ResponseCode.TOPIC_NOT_EXIST, fault=Fault.CALLER):
    """The topic does not exist and may not be created by sending to it."""


class NotFound(RemoteError, code=ResponseCode.QUERY_NOT_FOUND, fault=Fault.CALLER):
    """The requested object does not exist."""


class SubscriptionUnparsable(RemoteError, code=ResponseCode.SUBSCRIPTION_PARSE_FAILED, fault=Fault.CALLER):
    """The broker cannot parse the subscription expression."""


class SubscriptionUnknown(RemoteError, code=ResponseCode.SUBSCRIPTION_NOT_EXIST, retriable=True, fault=Fault.CALLER):
    """The broker does not know this group's subscription yet; a heartbeat must come first."""


class SubscriptionStale(RemoteError, code=ResponseCode.SUBSCRIPTION_NOT_LATEST, retriable=True, fault=Fault.CALLER):
    """The broker has an older subscription of this group than the caller."""


class GroupNotFound(RemoteError, code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, fault=Fault.CALLER):
    """The consumer group does not exist."""


class FilterUnknown(RemoteError, code=ResponseCode.FILTER_DATA_NOT_EXIST, retriable=True, fault=Fault.CALLER):
    """The broker has no filter for this subscription yet."""


class FilterStale(RemoteError, code=ResponseCode.FILTER_DATA_NOT_LATEST, retriable=True, fault=Fault.CALLER):
    """The broker's filter is older than the caller's subscription."""


class InvalidParameter(RemoteError, code=ResponseCode.INVALID_PARAMETER, fault=Fault.CALLER):
    """A field of the request has an invalid value."""


class ConsumerNotOnline(RemoteError, code=ResponseCode.CONSUMER_NOT_ONLINE, fault=Fault.CALLER):
    """No member of the consumer group is connected."""


class ConsumeTimedOut(RemoteError, code=ResponseCode.CONSUME_MSG_TIMEOUT, retriable=True):
    """A client did not respond to a direct consume request in time."""


class FlowControl(RemoteError, code=ResponseCode.FLOW_CONTROL, retriable=True):
    """The broker asks this client to slow down."""


class IllegalOperation(RemoteError, code=ResponseCode.ILLEGAL_OPERATION, fault=Fault.CALLER):
    """The request is not allowed in the current state."""


class GoAway(RemoteError, code=ResponseCode.GO_AWAY, retriable=True):
    """The server is shutting down; connect to another one."""


def _by_code() -> dict[int, type[RemoteError]]:
    table: dict[int, type[RemoteError]] = {}
    for kind in RemoteError.__subclasses__():
        assert kind.code not in table, f"{kind.__name__} and {table[kind.code].__name__} share a code"
        table[kind.code] = kind
    return table


_BY_CODE = _by_code()


def error_for(code: int, remark: str | None = None) -> RemoteError:
    """The error of a response code."""
    return _BY_CODE.get(code, RemoteError)(remark, code)
