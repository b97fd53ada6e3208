"""All that the client shows to programs, in one place: `pocketmq.client` looks here when the first of its names is asked for."""

# ruff: noqa: F401 - whoever asks for a name finds it

from pocketmq.client.admin import AsyncAdmin
from pocketmq.client.administration.reach import AdminSettings
from pocketmq.client.blocking_admin import Admin
from pocketmq.client.blocking_lite_pull_consumer import LitePullConsumer
from pocketmq.client.blocking_producer import BlockingTransaction, Producer
from pocketmq.client.blocking_pull_consumer import PullConsumer
from pocketmq.client.blocking_push_consumer import PushConsumer
from pocketmq.client.consume_result import (
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
from pocketmq.client.consumer_settings import LitePullSettings, PullSettings, PushSettings
from pocketmq.client.hooks import (
    ConsumeEvent,
    DecisionEvent,
    FilterEvent,
    Hooks,
    LeaveEvent,
    PauseEvent,
    PullEvent,
    RpcHook,
    SendEvent,
)
from pocketmq.client.instance import Instance, Surroundings
from pocketmq.client.lite_pull_consumer import AsyncLitePullConsumer
from pocketmq.client.metrics import ClientMetrics, MetricsInMemory
from pocketmq.client.offsets import OffsetStore
from pocketmq.client.otel_metrics import OpenTelemetryMetrics
from pocketmq.client.otel_tracing import OpenTelemetryTracing, context_of
from pocketmq.client.producer import AsyncProducer
from pocketmq.client.prometheus_metrics import PrometheusMetrics
from pocketmq.client.pull_consumer import AsyncPullConsumer
from pocketmq.client.pulling import PullResult, PullStatus
from pocketmq.client.push_consumer import AsyncPushConsumer
from pocketmq.client.results import SendResult, SendStatus
from pocketmq.client.running import run
from pocketmq.client.settings import ClientSettings, ProducerSettings
from pocketmq.client.transaction import Transaction
from pocketmq.client.transactions import TransactionListener, TransactionResult
from pocketmq.model.flags import TransactionState
from pocketmq.net.tls import client_context
from pocketmq.protocol.command import Command
from pocketmq.protocol.signing import Credentials
