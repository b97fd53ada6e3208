"""PocketMQ: Apache RocketMQ that you `pip install`.

Modules in reading order:

    codes           numbers of the remoting protocol: request codes, response codes, languages
    errors          every error as one tree of classes; each knows its code and whether a retry may help
    clock           the only module that reads the time
    system          what depends on the operating system, and what replaces it elsewhere
    files           the only module that touches the disk
    memory          whether glibc keeps freed memory for this process, or returns it to the system
    model/          values that client and servers share, and small pure rules about them
    compiled/       optional C twins of hot Python loops
    protocol/       the remoting protocol: bytes to values and back, without I/O
    net/            connections, servers, pools, TLS, and the loop thread of blocking clients
    store/          the message store: commit log, consume queues, key index, recovery
    access/         accounts and permissions, for both servers
    metrics/        metrics and log lines of the servers
    nameserver/     the name server
    broker/         the broker
    client/         producers, consumers and the administrator's client
    spark/          the Spark data source
    pipelines/      Spark jobs on top of the data source: archive, replay, mirror and others
    doctor/         finds the first broken step between a producer and a consumer
    proxy/          gRPC, for the official clients of RocketMQ 5
    embedded        a name server and a broker inside another program
    integrations/   FastStream, taskiq, Celery, FastAPI
    console/        the web console
    demo/           `pocketmq demo`
    cli/            the command line
    testing/        the test kit: virtual time, in-memory network, faulty disk
    pytest_plugin   pytest fixtures that start a broker
"""

import sys
import warnings
from typing import TYPE_CHECKING

from pocketmq.errors import PocketMQError
from pocketmq.model import Message, MessageQueue, StoredMessage

if TYPE_CHECKING:
    from pocketmq import doctor as doctor
    from pocketmq import pipelines as pipelines
    from pocketmq.client import (
        AckIndex,
        Admin,
        AsyncAdmin,
        AsyncLitePullConsumer,
        AsyncProducer,
        AsyncPullConsumer,
        AsyncPushConsumer,
        AsyncSimpleConsumer,
        ClientMetrics,
        ConsumeResult,
        Credentials,
        DeadLetter,
        Hooks,
        LitePullConsumer,
        Producer,
        PullConsumer,
        PushConsumer,
        RetryLater,
        SendResult,
        SendStatus,
        SimpleConsumer,
        Suspend,
        TransactionState,
        client_context,
        run,
    )
    from pocketmq.embedded import Server
    from pocketmq.spark.arrow_read import read_arrow
else:

    def __dir__() -> list[str]:
        """Include names that are not imported yet, so that `dir`, `help` and completion show them."""
        return sorted({*globals(), *__all__})

    def __getattr__(name: str) -> object:
        """Import names on first use: a client imports the network, a server much more."""
        if name == "Server":
            from pocketmq.embedded import Server

            return Server
        if name == "doctor":
            import pocketmq.doctor as doctor

            return doctor
        if name == "pipelines":
            import pocketmq.pipelines as pipelines

            return pipelines
        if name == "read_arrow":
            from pocketmq.spark.arrow_read import read_arrow

            return read_arrow
        if name in __all__:
            from pocketmq import client

            return getattr(client, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__version__ = "0.1.0"

if not getattr(sys, "_is_gil_enabled", lambda: True)():
    warnings.warn(
        "PocketMQ does not support Python without the global interpreter lock: set PYTHON_GIL=1, or use the standard build of Python",
        RuntimeWarning,
        stacklevel=2,
    )

__all__ = [
    "AckIndex",
    "Admin",
    "AsyncAdmin",
    "AsyncLitePullConsumer",
    "AsyncProducer",
    "AsyncPullConsumer",
    "AsyncPushConsumer",
    "AsyncSimpleConsumer",
    "ClientMetrics",
    "ConsumeResult",
    "Credentials",
    "DeadLetter",
    "Hooks",
    "LitePullConsumer",
    "Message",
    "MessageQueue",
    "PocketMQError",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "RetryLater",
    "SendResult",
    "SendStatus",
    "Server",
    "SimpleConsumer",
    "StoredMessage",
    "Suspend",
    "TransactionState",
    "__version__",
    "client_context",
    "read_arrow",
    "run",
]
