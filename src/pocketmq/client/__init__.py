"""The client: async classes, and blocking classes with the same names and arguments.

    AsyncProducer, Producer                   send messages: single, in batches, in transactions, as requests
    AsyncPushConsumer, PushConsumer           call listeners with messages
    AsyncLitePullConsumer, LitePullConsumer   return messages from poll(), or are iterated over
    AsyncPullConsumer, PullConsumer           pull from a queue and offset of the caller's choice
    AsyncAdmin, Admin                         query and change the cluster
    ClientMetrics                             metrics of all of these
    Instance                                  connections, routes and heartbeats, shared by all clients of one loop

The public names load on first use: a process that needs a few modules, such as a Spark worker, imports only these.

Modules in reading order:

    settings     every option that all clients have, with RocketMQ's defaults
    hooks        callbacks before and after a send and a consumption; used by traces, metrics and users
    received     prepares received messages for users, and copies of failed ones for the retry topic
    lifecycle    the states of a client: created, running, stopped
    cluster/     connections to brokers and name servers, routes, heartbeats
    telemetry/   metrics and message traces
    producer/    producers
    consumer/    push, lite pull and pull consumers
    admin/       the administrator's client
    blocking     base of all blocking clients: an async client on the loop thread
    running      runs clients as a program until SIGINT or SIGTERM
    public_names   the names that this package exports, loaded with the first of them
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pocketmq.client.admin.admin import Admin, AsyncAdmin
    from pocketmq.client.admin.targets import AdminSettings
    from pocketmq.client.cluster.instance import Dependencies, Instance
    from pocketmq.client.consumer.blocking_consumers import LitePullConsumer, PullConsumer, PushConsumer
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
    from pocketmq.client.consumer.lite_pull_consumer import AsyncLitePullConsumer
    from pocketmq.client.consumer.offsets import OffsetStore
    from pocketmq.client.consumer.pull_consumer import AsyncPullConsumer
    from pocketmq.client.consumer.pulling import PullResult, PullStatus
    from pocketmq.client.consumer.push_consumer import AsyncPushConsumer
    from pocketmq.client.consumer.settings import LitePullSettings, PullSettings, PushSettings
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
    from pocketmq.client.producer.blocking_producer import BlockingTransaction, Producer
    from pocketmq.client.producer.producer import AsyncProducer
    from pocketmq.client.producer.results import SendResult, SendStatus
    from pocketmq.client.producer.transactions import Transaction, TransactionListener, TransactionResult
    from pocketmq.client.running import run
    from pocketmq.client.settings import ClientSettings, ProducerSettings
    from pocketmq.client.telemetry.metrics import (
        ClientMetrics,
        MetricsInMemory,
        OpenTelemetryMetrics,
        PrometheusMetrics,
    )
    from pocketmq.client.telemetry.otel_tracing import OpenTelemetryTracing, context_of
    from pocketmq.model.flags import TransactionState
    from pocketmq.net.tls import client_context
    from pocketmq.protocol.command import Command
    from pocketmq.protocol.signing import Credentials
else:

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})

    def __getattr__(name: str) -> object:
        if name in __all__:
            from pocketmq.client import public_names

            return getattr(public_names, name)
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
    "Dependencies",
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
    "Suspend",
    "Transaction",
    "TransactionListener",
    "TransactionResult",
    "TransactionState",
    "client_context",
    "context_of",
    "run",
]
