"""PocketMQ: Apache RocketMQ that you `pip install`."""

from importlib.metadata import version

from pocketmq.errors import PocketMQError
from pocketmq.model.message import Message, StoredMessage
from pocketmq.model.queue import MessageQueue

__version__ = version("pocketmq")

__all__ = ["Message", "MessageQueue", "PocketMQError", "StoredMessage", "__version__"]
