"""PocketMQ: Apache RocketMQ that you `pip install`."""

from typing import TYPE_CHECKING

from pocketmq.errors import PocketMQError
from pocketmq.model.message import Message, StoredMessage
from pocketmq.model.queue import MessageQueue

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
        Suspend,
        TransactionState,
        client_context,
        run,
    )
    from pocketmq.embedded.server import Server
else:

    def __dir__() -> list[str]:
        """Also the names that were not asked for yet, so that `dir`, `help` and completion show them."""
        return sorted({*globals(), *__all__})

    def __getattr__(name: str) -> object:
        """What not every program needs comes when it is asked for: a client brings the network along, a server much more."""
        if name == "Server":
            from pocketmq.embedded.server import Server

            return Server
        if name == "doctor":
            import pocketmq.doctor as doctor

            return doctor
        if name == "pipelines":
            import pocketmq.pipelines as pipelines

            return pipelines
        if name in __all__:
            from pocketmq import client

            return getattr(client, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__version__ = "0.1.0"

__all__ = [
    "AckIndex",
    "Admin",
    "AsyncAdmin",
    "AsyncLitePullConsumer",
    "AsyncProducer",
    "AsyncPullConsumer",
    "AsyncPushConsumer",
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
    "StoredMessage",
    "Suspend",
    "TransactionState",
    "__version__",
    "client_context",
    "run",
]
