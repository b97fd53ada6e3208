"""PocketMQ: Apache RocketMQ that you `pip install`."""

from typing import TYPE_CHECKING

from pocketmq.errors import PocketMQError
from pocketmq.model.message import Message, StoredMessage
from pocketmq.model.queue import MessageQueue

if TYPE_CHECKING:
    from pocketmq.embedded.server import Server
else:

    def __getattr__(name: str) -> object:
        """What most programs do not need comes when it is asked for: a server brings name server, broker and store along."""
        if name == "Server":
            from pocketmq.embedded.server import Server

            return Server
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__version__ = "0.1.0"

__all__ = ["Message", "MessageQueue", "PocketMQError", "Server", "StoredMessage", "__version__"]
