"""The client: an async core and a blocking face with the same words.

    AsyncProducer, Producer                   send messages, alone, in batches, in transactions; ask and answer
    AsyncPushConsumer, PushConsumer           bring messages to listeners
    AsyncLitePullConsumer, LitePullConsumer   are polled, or iterated over
    AsyncPullConsumer, PullConsumer           pull from where they are told
    AsyncAdmin, Admin                         ask and change the cluster
    ClientMetrics                             numbers of what all of them do
    Instance                                  one client of a cluster: lines, routes, heartbeats, shared by all on one loop

Rules are pure and stand in files of their own: allocation, process queue, flow limits, retries, broker choice. What waits is async.

Names come when they are asked for: who needs a few modules of the client, as each process that Spark starts, imports these alone.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
else:

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})

    def __getattr__(name: str) -> object:
        if name in __all__:
            from pocketmq.client import public

            return getattr(public, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "COMMIT",
    "LATER",
    "ROLLBACK",
    "SUCCESS",
    "AckIndex",
    "Admin",
    "AdminSettings",
    "AsyncAdmin",
    "AsyncLitePullConsumer",
    "AsyncProducer",
    "AsyncPullConsumer",
    "AsyncPushConsumer",
    "BlockingTransaction",
    "ClientMetrics",
    "ClientSettings",
    "Command",
    "ConsumeEvent",
    "ConsumeResult",
    "Credentials",
    "DeadLetter",
    "DecisionEvent",
    "FilterEvent",
    "Hooks",
    "Instance",
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
    "Surroundings",
    "Suspend",
    "Transaction",
    "TransactionListener",
    "TransactionResult",
    "TransactionState",
    "client_context",
    "context_of",
    "run",
]
