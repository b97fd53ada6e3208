"""Everything that can go wrong, as one tree. Each class answers three questions:

    code        what a peer is told on the wire
    retriable   may the same call succeed when made again?
    fault       who has to change something: caller, peer, network or server

    PocketMQError
    ├─ ProtocolError       bytes that break the protocol
    ├─ UsageError          a value that can never work (also a ValueError)
    ├─ NetworkError        no answer: connect failed, line lost, time is up
    ├─ StoreError          the disk or the files on it
    └─ RemoteError         a peer answered with a failure; one class per response code

A server raises the same classes that a client gets back, so `error_for` is the only look-up by code.
"""

from enum import Enum
from typing import ClassVar

from pocketmq.codes import ResponseCode


class Fault(Enum):
    """Who has to change something before the call can succeed."""

    CALLER = "caller"
    PEER = "peer"
    NETWORK = "network"
    SERVER = "server"


class PocketMQError(Exception):
    """Base of all errors that PocketMQ raises on purpose."""

    code: ClassVar[ResponseCode] = ResponseCode.SYSTEM_ERROR
    retriable: ClassVar[bool] = False
    fault: ClassVar[Fault] = Fault.SERVER


class ProtocolError(PocketMQError):
    """A peer sent bytes that are not RocketMQ's protocol, or exceed a limit of it."""

    fault = Fault.PEER


class UnreadableMessage(ProtocolError):
    """A message whose body cannot be read: damaged, not compressed as it claims to be, or an inner batch that is none.

    Another attempt reads the same bytes. Other messages are not affected.
    """


class HeaderError(ProtocolError):
    """A request's header lacks a field or holds a value of the wrong kind; the frame itself was sound."""


class BodyError(ProtocolError):
    """A body is not of the type that its request has; the frame itself was sound."""


class UsageError(PocketMQError, ValueError):
    """A value that can never work, found before anything was sent or written."""

    code = ResponseCode.INVALID_PARAMETER
    fault = Fault.CALLER


class InvalidName(UsageError):
    """A topic, group, tag or namespace name breaks the rules."""


class InvalidMessage(UsageError):
    """A message that no broker would take: empty, too large, or with a reserved or unsafe property."""

    code = ResponseCode.MESSAGE_ILLEGAL


class InvalidExpression(UsageError):
    """A subscription expression that cannot be parsed."""

    code = ResponseCode.SUBSCRIPTION_PARSE_FAILED


class InvalidSetting(UsageError):
    """A setting with an unknown name or an impossible value."""


class ImpossibleRequest(UsageError):
    """A request that was understood and can never be carried out as it is; RocketMQ has no better code for it than 1."""

    code = ResponseCode.SYSTEM_ERROR


class WrongState(PocketMQError, RuntimeError):
    """Called too early, too late, or from a place where it cannot work: not started, closed, inside a running loop."""

    fault = Fault.CALLER


class ProgramFailed(PocketMQError):
    """A program that this one started did not become ready, or ended by itself; what it said stands above."""


class PipelineFailed(PocketMQError):
    """A query of Spark ended by an error; the text is its sentence, the cause is Spark's own error."""


class MissingLibrary(PocketMQError, ImportError):
    """What was asked for needs a library that is not installed; the text names the extra that brings it."""

    fault = Fault.CALLER


class Stuck(PocketMQError, AssertionError):
    """A test that can never go on: every task waits for nothing, one spins, or a stalled call is never released."""

    fault = Fault.CALLER


class NetworkError(PocketMQError):
    """No answer came. The request may or may not have been carried out."""

    code = ResponseCode.SERVICE_NOT_AVAILABLE
    retriable = True
    fault = Fault.NETWORK


class ConnectFailed(NetworkError):
    """The address could not be reached; nothing was sent."""


class ListenFailed(NetworkError):
    """The address cannot be listened on: taken by another program, or not one of this machine's."""

    retriable = False
    fault = Fault.CALLER


class ConnectionLost(NetworkError):
    """The line went down before the answer came."""


class CallTimedOut(NetworkError, TimeoutError):
    """The deadline passed before the answer came."""


class TooManyCalls(NetworkError):
    """The bound on calls in flight is reached; nothing was sent."""

    code = ResponseCode.SYSTEM_BUSY
    fault = Fault.CALLER


class PartlySent(PocketMQError):
    """Some messages of one call were stored and the rest was not; the cause is the error of the rest.

    `results` has one entry for each message, in the order of the call: where it was stored, or None.
    """

    fault = Fault.NETWORK

    def __init__(self, results: tuple[object | None, ...]) -> None:
        super().__init__(results)
        self.results = results

    def __str__(self) -> str:
        stored = sum(result is not None for result in self.results)
        return f"{stored} of {len(self.results)} messages were stored before one could not be; `results` tells which"


class DataLost(PocketMQError):
    """Messages that were still to be read are gone: deleted, cut off, or of a topic that was made anew; the text names them."""


class StoreError(PocketMQError):
    """The store cannot do what was asked."""

    code = ResponseCode.SERVICE_NOT_AVAILABLE


class StoreLocked(StoreError):
    """Another process owns the folder."""

    fault = Fault.CALLER


class StoreDamaged(StoreError):
    """A file is not what its format says; the text names file and offset."""


class StoreFull(StoreError):
    """No space left. Writing resumes by itself when space returns."""

    retriable = True


class StoreBusy(StoreError):
    """The store cannot take more right now: no prepared file, pool empty, too much not yet synced."""

    code = ResponseCode.SYSTEM_BUSY
    retriable = True


class QueueDamaged(StoreError):
    """The entry of a consume queue does not match the log. The broker makes it again from the log; try again."""

    code = ResponseCode.SYSTEM_BUSY
    retriable = True

    def __init__(self, topic: str, queue_id: int, offset: int) -> None:
        super().__init__(topic, queue_id, offset)  # as given, so that a pickled error is rebuilt the same
        self.topic, self.queue_id, self.offset = topic, queue_id, offset

    def __str__(self) -> str:
        return (
            f"consume queue {self.topic}:{self.queue_id} is damaged at offset {self.offset}: "
            "its entries are rebuilt from the log. Try again in a moment"
        )


class PoolEmpty(StoreBusy):
    """The transient pool has no room for another record; waiting a moment would only fill it again."""


class SyncFailed(StoreError):
    """The disk refused to sync. What was written since the last good sync is in doubt until a restart recovers."""


class RemoteError(PocketMQError):
    """A peer answered with a failure.

    `code` of the class is the code it stands for; `response_code` is what came over the wire, which may be a number
    that has no class of its own.
    """

    def __init__(self, remark: str | None = None, response_code: int | None = None) -> None:
        super().__init__(remark, response_code)  # as given, so that a pickled error is rebuilt the same
        self.response_code = int(self.code) if response_code is None else response_code
        self.remark = remark

    def __str__(self) -> str:
        return f"{self.label()}: {self.remark}" if self.remark else self.label()

    def label(self) -> str:
        """The code as a person would read it: `TOPIC_NOT_EXIST (17)`."""
        try:
            return f"{ResponseCode(self.response_code).name} ({self.response_code})"
        except ValueError:
            return f"response code {self.response_code}"


class ServerFailed(RemoteError):
    """The peer ran into an error of its own."""


class SystemBusy(RemoteError):
    """Flow control: the broker refuses for now. The remark says why and when to come back."""

    code = ResponseCode.SYSTEM_BUSY
    retriable = True


class RequestNotSupported(RemoteError):
    """The peer does not know this request code."""

    code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    fault = Fault.CALLER


class FlushDiskTimeout(RemoteError):
    """Stored, but not yet synced to disk when the time was up."""

    code = ResponseCode.FLUSH_DISK_TIMEOUT


class SlaveNotAvailable(RemoteError):
    """Stored here, but no replica was there to take it."""

    code = ResponseCode.SLAVE_NOT_AVAILABLE


class FlushSlaveTimeout(RemoteError):
    """Stored here, but a replica did not confirm in time."""

    code = ResponseCode.FLUSH_SLAVE_TIMEOUT


class MessageIllegal(RemoteError):
    """The broker will never take this message."""

    code = ResponseCode.MESSAGE_ILLEGAL
    fault = Fault.CALLER


class ServiceNotAvailable(RemoteError):
    """The broker cannot write now: stopping, a slave, or its disk is full."""

    code = ResponseCode.SERVICE_NOT_AVAILABLE
    retriable = True


class NoPermission(RemoteError):
    """Refused by an access rule, a permission bit or a switch of the broker."""

    code = ResponseCode.NO_PERMISSION
    fault = Fault.CALLER


class TopicNotFound(RemoteError):
    """The topic does not exist and may not be created by sending to it."""

    code = ResponseCode.TOPIC_NOT_EXIST
    fault = Fault.CALLER


class NotFound(RemoteError):
    """The thing that was asked for is not there."""

    code = ResponseCode.QUERY_NOT_FOUND
    fault = Fault.CALLER


class SubscriptionUnparsable(RemoteError):
    """The broker cannot parse the subscription expression."""

    code = ResponseCode.SUBSCRIPTION_PARSE_FAILED
    fault = Fault.CALLER


class SubscriptionUnknown(RemoteError):
    """The broker has not heard of this group's subscription yet: its heartbeat comes first."""

    code = ResponseCode.SUBSCRIPTION_NOT_EXIST
    retriable = True
    fault = Fault.CALLER


class SubscriptionStale(RemoteError):
    """The broker knows an older subscription of this group than the caller."""

    code = ResponseCode.SUBSCRIPTION_NOT_LATEST
    retriable = True
    fault = Fault.CALLER


class GroupNotFound(RemoteError):
    """The consumer group does not exist."""

    code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    fault = Fault.CALLER


class FilterUnknown(RemoteError):
    """The broker has no compiled filter for this subscription yet."""

    code = ResponseCode.FILTER_DATA_NOT_EXIST
    retriable = True
    fault = Fault.CALLER


class FilterStale(RemoteError):
    """The broker's compiled filter is older than the caller's subscription."""

    code = ResponseCode.FILTER_DATA_NOT_LATEST
    retriable = True
    fault = Fault.CALLER


class InvalidParameter(RemoteError):
    """A field of the request has an impossible value."""

    code = ResponseCode.INVALID_PARAMETER
    fault = Fault.CALLER


class ConsumerNotOnline(RemoteError):
    """No member of the consumer group is connected."""

    code = ResponseCode.CONSUMER_NOT_ONLINE
    fault = Fault.CALLER


class ConsumeTimedOut(RemoteError):
    """A client that was asked to consume a message directly did not answer in time."""

    code = ResponseCode.CONSUME_MSG_TIMEOUT
    retriable = True


class FlowControl(RemoteError):
    """The broker asks this client to slow down."""

    code = ResponseCode.FLOW_CONTROL
    retriable = True


class IllegalOperation(RemoteError):
    """The request is understood and makes no sense in the present state."""

    code = ResponseCode.ILLEGAL_OPERATION
    fault = Fault.CALLER


class GoAway(RemoteError):
    """The server is shutting down: reconnect, preferably elsewhere."""

    code = ResponseCode.GO_AWAY
    retriable = True


def _by_code() -> dict[int, type[RemoteError]]:
    table: dict[int, type[RemoteError]] = {}
    for kind in RemoteError.__subclasses__():
        assert kind.code not in table, f"{kind.__name__} and {table[kind.code].__name__} share a code"
        table[kind.code] = kind
    return table


_BY_CODE = _by_code()


def error_for(code: int, remark: str | None = None) -> RemoteError:
    """The error that stands for a response code."""
    return _BY_CODE.get(code, RemoteError)(remark, code)
