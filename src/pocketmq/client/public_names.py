"""All names that `pocketmq.client` exports. It imports this module when the first of them is used."""

from pocketmq.client.admin.admin import Admin, AsyncAdmin
from pocketmq.client.admin.targets import AdminSettings
from pocketmq.client.cluster.instance import Dependencies, Instance
from pocketmq.client.consumer.allocation import AllocationStrategy, strategy_named
from pocketmq.client.consumer.blocking_consumers import LitePullConsumer, PullConsumer, PushConsumer, SimpleConsumer
from pocketmq.client.consumer.consume_result import (
    COMMIT,
    LATER,
    ROLLBACK,
    SUCCESS,
    AckIndex,
    ConsumeResult,
    DeadLetter,
    RetryLater,
    Suspend,
)
from pocketmq.client.consumer.leases import LeaseCounts
from pocketmq.client.consumer.lite_pull_consumer import AsyncLitePullConsumer
from pocketmq.client.consumer.offsets import OffsetStore
from pocketmq.client.consumer.pull_consumer import AsyncPullConsumer
from pocketmq.client.consumer.pulling import PullResult, PullStatus
from pocketmq.client.consumer.push_consumer import AsyncPushConsumer
from pocketmq.client.consumer.settings import LitePullSettings, PullSettings, PushSettings, SimpleSettings
from pocketmq.client.consumer.simple_consumer import AsyncSimpleConsumer
from pocketmq.client.hooks import (
    ConsumeEvent,
    DecisionEvent,
    FilterEvent,
    Hooks,
    LeaseChange,
    LeaseEvent,
    LeaveEvent,
    PauseEvent,
    PullEvent,
    RpcHook,
    SendEvent,
)
from pocketmq.client.producer.blocking_producer import BlockingTransaction, Producer
from pocketmq.client.producer.producer import AsyncProducer
from pocketmq.client.producer.results import SendResult, SendStatus
from pocketmq.client.producer.transactions import Transaction, TransactionListener, TransactionResult
from pocketmq.client.running import run
from pocketmq.client.settings import ClientSettings, ProducerSettings
from pocketmq.client.telemetry.metrics import ClientMetrics, MetricsInMemory, OpenTelemetryMetrics, PrometheusMetrics
from pocketmq.client.telemetry.otel_tracing import OpenTelemetryTracing, context_of
from pocketmq.codes import TransactionState
from pocketmq.net import client_context
from pocketmq.protocol.command import Command
from pocketmq.protocol.signing import Credentials

__all__ = [
    "COMMIT",
    "LATER",
    "ROLLBACK",
    "SUCCESS",
    "AckIndex",
    "Admin",
    "AdminSettings",
    "AllocationStrategy",
    "AsyncAdmin",
    "AsyncLitePullConsumer",
    "AsyncProducer",
    "AsyncPullConsumer",
    "AsyncPushConsumer",
    "AsyncSimpleConsumer",
    "BlockingTransaction",
    "ClientMetrics",
    "ClientSettings",
    "Command",
    "ConsumeEvent",
    "ConsumeResult",
    "Credentials",
    "DeadLetter",
    "DecisionEvent",
    "Dependencies",
    "FilterEvent",
    "Hooks",
    "Instance",
    "LeaseChange",
    "LeaseCounts",
    "LeaseEvent",
    "LeaveEvent",
    "LitePullConsumer",
    "LitePullSettings",
    "MetricsInMemory",
    "OffsetStore",
    "OpenTelemetryMetrics",
    "OpenTelemetryTracing",
    "PauseEvent",
    "Producer",
    "ProducerSettings",
    "PrometheusMetrics",
    "PullConsumer",
    "PullEvent",
    "PullResult",
    "PullSettings",
    "PullStatus",
    "PushConsumer",
    "PushSettings",
    "RetryLater",
    "RpcHook",
    "SendEvent",
    "SendResult",
    "SendStatus",
    "SimpleConsumer",
    "SimpleSettings",
    "Suspend",
    "Transaction",
    "TransactionListener",
    "TransactionResult",
    "TransactionState",
    "client_context",
    "context_of",
    "run",
    "strategy_named",
]
