# Types of the messages, made from rocketmq.proto by `python -m tests.proxy.generated`.

from collections.abc import Iterable, Mapping, MutableMapping, MutableSequence
from enum import IntEnum
from typing import Final, Self, TypeVar

_T = TypeVar("_T")

SERVICE: Final[str]
METHODS: Final[dict[str, tuple[type[_Message], type[_Message]]]]

class _Message:
    def HasField(self, name: str) -> bool: ...
    def ClearField(self, name: str) -> None: ...
    def WhichOneof(self, group: str) -> str | None: ...
    def CopyFrom(self, other: Self) -> None: ...
    def ByteSize(self) -> int: ...
    def SerializeToString(self) -> bytes: ...
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...

class Repeated(list[_T]):
    def add(self, **fields: object) -> _T: ...

class Timestamp(_Message):
    seconds: int
    nanos: int
    def __init__(self, *, seconds: int = ..., nanos: int = ...) -> None: ...

class Duration(_Message):
    seconds: int
    nanos: int
    def __init__(self, *, seconds: int = ..., nanos: int = ...) -> None: ...

class Code(IntEnum):
    CODE_UNSPECIFIED = 0
    OK = 20000
    MULTIPLE_RESULTS = 30000
    BAD_REQUEST = 40000
    ILLEGAL_ACCESS_POINT = 40001
    ILLEGAL_TOPIC = 40002
    ILLEGAL_CONSUMER_GROUP = 40003
    ILLEGAL_MESSAGE_TAG = 40004
    ILLEGAL_MESSAGE_KEY = 40005
    ILLEGAL_MESSAGE_GROUP = 40006
    ILLEGAL_MESSAGE_PROPERTY_KEY = 40007
    INVALID_TRANSACTION_ID = 40008
    ILLEGAL_MESSAGE_ID = 40009
    ILLEGAL_FILTER_EXPRESSION = 40010
    ILLEGAL_INVISIBLE_TIME = 40011
    ILLEGAL_DELIVERY_TIME = 40012
    INVALID_RECEIPT_HANDLE = 40013
    MESSAGE_PROPERTY_CONFLICT_WITH_TYPE = 40014
    UNRECOGNIZED_CLIENT_TYPE = 40015
    MESSAGE_CORRUPTED = 40016
    CLIENT_ID_REQUIRED = 40017
    ILLEGAL_POLLING_TIME = 40018
    UNAUTHORIZED = 40100
    FORBIDDEN = 40300
    MESSAGE_NOT_FOUND = 40401
    TOPIC_NOT_FOUND = 40402
    CONSUMER_GROUP_NOT_FOUND = 40403
    MESSAGE_BODY_TOO_LARGE = 41301
    MESSAGE_BODY_EMPTY = 41302
    TOO_MANY_REQUESTS = 42900
    MESSAGE_PROPERTIES_TOO_LARGE = 43101
    INTERNAL_ERROR = 50000
    INTERNAL_SERVER_ERROR = 50001
    HA_NOT_AVAILABLE = 50002
    NOT_IMPLEMENTED = 50100
    PROXY_TIMEOUT = 50400
    MASTER_PERSISTENCE_TIMEOUT = 50401
    SLAVE_PERSISTENCE_TIMEOUT = 50402
    VERIFY_FIFO_MESSAGE_UNSUPPORTED = 50502
    FAILED_TO_CONSUME_MESSAGE = 60000

class AddressScheme(IntEnum):
    ADDRESS_SCHEME_UNSPECIFIED = 0
    IPv4 = 1
    IPv6 = 2
    DOMAIN_NAME = 3

class Permission(IntEnum):
    PERMISSION_UNSPECIFIED = 0
    NONE = 1
    READ = 2
    WRITE = 3
    READ_WRITE = 4

class MessageType(IntEnum):
    MESSAGE_TYPE_UNSPECIFIED = 0
    NORMAL = 1
    FIFO = 2
    DELAY = 3
    TRANSACTION = 4

class DigestType(IntEnum):
    DIGEST_TYPE_UNSPECIFIED = 0
    CRC32 = 1
    MD5 = 2
    SHA1 = 3

class Encoding(IntEnum):
    ENCODING_UNSPECIFIED = 0
    IDENTITY = 1
    GZIP = 2

class TransactionResolution(IntEnum):
    TRANSACTION_RESOLUTION_UNSPECIFIED = 0
    COMMIT = 1
    ROLLBACK = 2

class TransactionSource(IntEnum):
    SOURCE_UNSPECIFIED = 0
    SOURCE_CLIENT = 1
    SOURCE_SERVER_CHECK = 2

class FilterType(IntEnum):
    FILTER_TYPE_UNSPECIFIED = 0
    TAG = 1
    SQL = 2

class ClientType(IntEnum):
    CLIENT_TYPE_UNSPECIFIED = 0
    PRODUCER = 1
    PUSH_CONSUMER = 2
    SIMPLE_CONSUMER = 3
    PULL_CONSUMER = 4

class Language(IntEnum):
    LANGUAGE_UNSPECIFIED = 0
    JAVA = 1
    CPP = 2
    DOT_NET = 3
    GOLANG = 4
    RUST = 5
    PYTHON = 6
    PHP = 7
    NODE_JS = 8

class Status(_Message):
    code: int
    message: str
    def __init__(self, *, code: int | None = ..., message: str | None = ...) -> None: ...

class Resource(_Message):
    resource_namespace: str
    name: str
    def __init__(self, *, resource_namespace: str | None = ..., name: str | None = ...) -> None: ...

class Address(_Message):
    host: str
    port: int
    def __init__(self, *, host: str | None = ..., port: int | None = ...) -> None: ...

class Endpoints(_Message):
    scheme: int
    addresses: Repeated[Address]
    def __init__(self, *, scheme: int | None = ..., addresses: Iterable[Address] | None = ...) -> None: ...

class Broker(_Message):
    name: str
    id: int
    endpoints: Endpoints
    def __init__(self, *, name: str | None = ..., id: int | None = ..., endpoints: Endpoints | None = ...) -> None: ...

class MessageQueue(_Message):
    topic: Resource
    id: int
    permission: int
    broker: Broker
    accept_message_types: MutableSequence[int]
    def __init__(
        self,
        *,
        topic: Resource | None = ...,
        id: int | None = ...,
        permission: int | None = ...,
        broker: Broker | None = ...,
        accept_message_types: Iterable[int] | None = ...,
    ) -> None: ...

class QueryRouteRequest(_Message):
    topic: Resource
    endpoints: Endpoints
    def __init__(self, *, topic: Resource | None = ..., endpoints: Endpoints | None = ...) -> None: ...

class QueryRouteResponse(_Message):
    status: Status
    message_queues: Repeated[MessageQueue]
    def __init__(self, *, status: Status | None = ..., message_queues: Iterable[MessageQueue] | None = ...) -> None: ...

class QueryAssignmentRequest(_Message):
    topic: Resource
    group: Resource
    endpoints: Endpoints
    def __init__(
        self, *, topic: Resource | None = ..., group: Resource | None = ..., endpoints: Endpoints | None = ...
    ) -> None: ...

class Assignment(_Message):
    message_queue: MessageQueue
    def __init__(self, *, message_queue: MessageQueue | None = ...) -> None: ...

class QueryAssignmentResponse(_Message):
    status: Status
    assignments: Repeated[Assignment]
    def __init__(self, *, status: Status | None = ..., assignments: Iterable[Assignment] | None = ...) -> None: ...

class Digest(_Message):
    type: int
    checksum: str
    def __init__(self, *, type: int | None = ..., checksum: str | None = ...) -> None: ...

class DeadLetterQueue(_Message):
    topic: str
    message_id: str
    def __init__(self, *, topic: str | None = ..., message_id: str | None = ...) -> None: ...

class SystemProperties(_Message):
    tag: str
    keys: MutableSequence[str]
    message_id: str
    body_digest: Digest
    body_encoding: int
    message_type: int
    born_timestamp: Timestamp
    born_host: str
    store_timestamp: Timestamp
    store_host: str
    delivery_timestamp: Timestamp
    receipt_handle: str
    queue_id: int
    queue_offset: int
    invisible_duration: Duration
    delivery_attempt: int
    message_group: str
    trace_context: str
    orphaned_transaction_recovery_duration: Duration
    dead_letter_queue: DeadLetterQueue
    lite_topic: str
    priority: int
    def __init__(
        self,
        *,
        tag: str | None = ...,
        keys: Iterable[str] | None = ...,
        message_id: str | None = ...,
        body_digest: Digest | None = ...,
        body_encoding: int | None = ...,
        message_type: int | None = ...,
        born_timestamp: Timestamp | None = ...,
        born_host: str | None = ...,
        store_timestamp: Timestamp | None = ...,
        store_host: str | None = ...,
        delivery_timestamp: Timestamp | None = ...,
        receipt_handle: str | None = ...,
        queue_id: int | None = ...,
        queue_offset: int | None = ...,
        invisible_duration: Duration | None = ...,
        delivery_attempt: int | None = ...,
        message_group: str | None = ...,
        trace_context: str | None = ...,
        orphaned_transaction_recovery_duration: Duration | None = ...,
        dead_letter_queue: DeadLetterQueue | None = ...,
        lite_topic: str | None = ...,
        priority: int | None = ...,
    ) -> None: ...

class Message(_Message):
    topic: Resource
    user_properties: MutableMapping[str, str]
    system_properties: SystemProperties
    body: bytes
    def __init__(
        self,
        *,
        topic: Resource | None = ...,
        user_properties: Mapping[str, str] | None = ...,
        system_properties: SystemProperties | None = ...,
        body: bytes | None = ...,
    ) -> None: ...

class SendMessageRequest(_Message):
    messages: Repeated[Message]
    def __init__(self, *, messages: Iterable[Message] | None = ...) -> None: ...

class SendResultEntry(_Message):
    status: Status
    message_id: str
    transaction_id: str
    offset: int
    recall_handle: str
    def __init__(
        self,
        *,
        status: Status | None = ...,
        message_id: str | None = ...,
        transaction_id: str | None = ...,
        offset: int | None = ...,
        recall_handle: str | None = ...,
    ) -> None: ...

class SendMessageResponse(_Message):
    status: Status
    entries: Repeated[SendResultEntry]
    def __init__(self, *, status: Status | None = ..., entries: Iterable[SendResultEntry] | None = ...) -> None: ...

class EndTransactionRequest(_Message):
    topic: Resource
    message_id: str
    transaction_id: str
    resolution: int
    source: int
    trace_context: str
    def __init__(
        self,
        *,
        topic: Resource | None = ...,
        message_id: str | None = ...,
        transaction_id: str | None = ...,
        resolution: int | None = ...,
        source: int | None = ...,
        trace_context: str | None = ...,
    ) -> None: ...

class EndTransactionResponse(_Message):
    status: Status
    def __init__(self, *, status: Status | None = ...) -> None: ...

class RecallMessageRequest(_Message):
    topic: Resource
    recall_handle: str
    def __init__(self, *, topic: Resource | None = ..., recall_handle: str | None = ...) -> None: ...

class RecallMessageResponse(_Message):
    status: Status
    message_id: str
    def __init__(self, *, status: Status | None = ..., message_id: str | None = ...) -> None: ...

class FilterExpression(_Message):
    type: int
    expression: str
    def __init__(self, *, type: int | None = ..., expression: str | None = ...) -> None: ...

class ReceiveMessageRequest(_Message):
    group: Resource
    message_queue: MessageQueue
    filter_expression: FilterExpression
    batch_size: int
    invisible_duration: Duration
    auto_renew: bool
    long_polling_timeout: Duration
    attempt_id: str
    def __init__(
        self,
        *,
        group: Resource | None = ...,
        message_queue: MessageQueue | None = ...,
        filter_expression: FilterExpression | None = ...,
        batch_size: int | None = ...,
        invisible_duration: Duration | None = ...,
        auto_renew: bool | None = ...,
        long_polling_timeout: Duration | None = ...,
        attempt_id: str | None = ...,
    ) -> None: ...

class ReceiveMessageResponse(_Message):
    status: Status
    message: Message
    delivery_timestamp: Timestamp
    def __init__(
        self, *, status: Status | None = ..., message: Message | None = ..., delivery_timestamp: Timestamp | None = ...
    ) -> None: ...

class AckMessageEntry(_Message):
    message_id: str
    receipt_handle: str
    lite_topic: str
    def __init__(
        self, *, message_id: str | None = ..., receipt_handle: str | None = ..., lite_topic: str | None = ...
    ) -> None: ...

class AckMessageRequest(_Message):
    group: Resource
    topic: Resource
    entries: Repeated[AckMessageEntry]
    def __init__(
        self,
        *,
        group: Resource | None = ...,
        topic: Resource | None = ...,
        entries: Iterable[AckMessageEntry] | None = ...,
    ) -> None: ...

class AckMessageResultEntry(_Message):
    message_id: str
    receipt_handle: str
    status: Status
    def __init__(
        self, *, message_id: str | None = ..., receipt_handle: str | None = ..., status: Status | None = ...
    ) -> None: ...

class AckMessageResponse(_Message):
    status: Status
    entries: Repeated[AckMessageResultEntry]
    def __init__(
        self, *, status: Status | None = ..., entries: Iterable[AckMessageResultEntry] | None = ...
    ) -> None: ...

class ChangeInvisibleDurationRequest(_Message):
    group: Resource
    topic: Resource
    receipt_handle: str
    invisible_duration: Duration
    message_id: str
    lite_topic: str
    suspend: bool
    def __init__(
        self,
        *,
        group: Resource | None = ...,
        topic: Resource | None = ...,
        receipt_handle: str | None = ...,
        invisible_duration: Duration | None = ...,
        message_id: str | None = ...,
        lite_topic: str | None = ...,
        suspend: bool | None = ...,
    ) -> None: ...

class ChangeInvisibleDurationResponse(_Message):
    status: Status
    receipt_handle: str
    def __init__(self, *, status: Status | None = ..., receipt_handle: str | None = ...) -> None: ...

class ForwardMessageToDeadLetterQueueRequest(_Message):
    group: Resource
    topic: Resource
    receipt_handle: str
    message_id: str
    delivery_attempt: int
    max_delivery_attempts: int
    lite_topic: str
    def __init__(
        self,
        *,
        group: Resource | None = ...,
        topic: Resource | None = ...,
        receipt_handle: str | None = ...,
        message_id: str | None = ...,
        delivery_attempt: int | None = ...,
        max_delivery_attempts: int | None = ...,
        lite_topic: str | None = ...,
    ) -> None: ...

class ForwardMessageToDeadLetterQueueResponse(_Message):
    status: Status
    def __init__(self, *, status: Status | None = ...) -> None: ...

class HeartbeatRequest(_Message):
    group: Resource
    client_type: int
    def __init__(self, *, group: Resource | None = ..., client_type: int | None = ...) -> None: ...

class HeartbeatResponse(_Message):
    status: Status
    def __init__(self, *, status: Status | None = ...) -> None: ...

class NotifyClientTerminationRequest(_Message):
    group: Resource
    def __init__(self, *, group: Resource | None = ...) -> None: ...

class NotifyClientTerminationResponse(_Message):
    status: Status
    def __init__(self, *, status: Status | None = ...) -> None: ...

class UA(_Message):
    language: int
    version: str
    platform: str
    hostname: str
    def __init__(
        self,
        *,
        language: int | None = ...,
        version: str | None = ...,
        platform: str | None = ...,
        hostname: str | None = ...,
    ) -> None: ...

class ExponentialBackoff(_Message):
    initial: Duration
    max: Duration
    multiplier: float
    def __init__(
        self, *, initial: Duration | None = ..., max: Duration | None = ..., multiplier: float | None = ...
    ) -> None: ...

class CustomizedBackoff(_Message):
    next: Repeated[Duration]
    def __init__(self, *, next: Iterable[Duration] | None = ...) -> None: ...

class RetryPolicy(_Message):
    max_attempts: int
    exponential_backoff: ExponentialBackoff
    customized_backoff: CustomizedBackoff
    def __init__(
        self,
        *,
        max_attempts: int | None = ...,
        exponential_backoff: ExponentialBackoff | None = ...,
        customized_backoff: CustomizedBackoff | None = ...,
    ) -> None: ...

class Publishing(_Message):
    topics: Repeated[Resource]
    max_body_size: int
    validate_message_type: bool
    def __init__(
        self,
        *,
        topics: Iterable[Resource] | None = ...,
        max_body_size: int | None = ...,
        validate_message_type: bool | None = ...,
    ) -> None: ...

class SubscriptionEntry(_Message):
    topic: Resource
    expression: FilterExpression
    def __init__(self, *, topic: Resource | None = ..., expression: FilterExpression | None = ...) -> None: ...

class Subscription(_Message):
    group: Resource
    subscriptions: Repeated[SubscriptionEntry]
    fifo: bool
    receive_batch_size: int
    long_polling_timeout: Duration
    def __init__(
        self,
        *,
        group: Resource | None = ...,
        subscriptions: Iterable[SubscriptionEntry] | None = ...,
        fifo: bool | None = ...,
        receive_batch_size: int | None = ...,
        long_polling_timeout: Duration | None = ...,
    ) -> None: ...

class Metric(_Message):
    on: bool
    endpoints: Endpoints
    def __init__(self, *, on: bool | None = ..., endpoints: Endpoints | None = ...) -> None: ...

class Settings(_Message):
    client_type: int
    access_point: Endpoints
    backoff_policy: RetryPolicy
    request_timeout: Duration
    publishing: Publishing
    subscription: Subscription
    user_agent: UA
    metric: Metric
    def __init__(
        self,
        *,
        client_type: int | None = ...,
        access_point: Endpoints | None = ...,
        backoff_policy: RetryPolicy | None = ...,
        request_timeout: Duration | None = ...,
        publishing: Publishing | None = ...,
        subscription: Subscription | None = ...,
        user_agent: UA | None = ...,
        metric: Metric | None = ...,
    ) -> None: ...

class ThreadStackTrace(_Message):
    nonce: str
    thread_stack_trace: str
    def __init__(self, *, nonce: str | None = ..., thread_stack_trace: str | None = ...) -> None: ...

class VerifyMessageResult(_Message):
    nonce: str
    def __init__(self, *, nonce: str | None = ...) -> None: ...

class RecoverOrphanedTransactionCommand(_Message):
    message: Message
    transaction_id: str
    def __init__(self, *, message: Message | None = ..., transaction_id: str | None = ...) -> None: ...

class PrintThreadStackTraceCommand(_Message):
    nonce: str
    def __init__(self, *, nonce: str | None = ...) -> None: ...

class VerifyMessageCommand(_Message):
    nonce: str
    message: Message
    def __init__(self, *, nonce: str | None = ..., message: Message | None = ...) -> None: ...

class ReconnectEndpointsCommand(_Message):
    nonce: str
    def __init__(self, *, nonce: str | None = ...) -> None: ...

class TelemetryCommand(_Message):
    status: Status
    settings: Settings
    thread_stack_trace: ThreadStackTrace
    verify_message_result: VerifyMessageResult
    recover_orphaned_transaction_command: RecoverOrphanedTransactionCommand
    print_thread_stack_trace_command: PrintThreadStackTraceCommand
    verify_message_command: VerifyMessageCommand
    reconnect_endpoints_command: ReconnectEndpointsCommand
    def __init__(
        self,
        *,
        status: Status | None = ...,
        settings: Settings | None = ...,
        thread_stack_trace: ThreadStackTrace | None = ...,
        verify_message_result: VerifyMessageResult | None = ...,
        recover_orphaned_transaction_command: RecoverOrphanedTransactionCommand | None = ...,
        print_thread_stack_trace_command: PrintThreadStackTraceCommand | None = ...,
        verify_message_command: VerifyMessageCommand | None = ...,
        reconnect_endpoints_command: ReconnectEndpointsCommand | None = ...,
    ) -> None: ...
