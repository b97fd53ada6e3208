"""PocketMQ: Apache RocketMQ that you `pip install`."""

from pocketmq.errors import PocketMQError
from pocketmq.model.message import Message, StoredMessage
from pocketmq.model.queue import MessageQueue

__version__ = "0.1.0"

__all__ = ["Message", "MessageQueue", "PocketMQError", "StoredMessage", "__version__"]
