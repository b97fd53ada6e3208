"""From what a caller says about queues to a wish: this queue, a selector's choice, the sharding key's, or any."""

from pocketmq.client.selectors import QueueSelector, by_hash
from pocketmq.client.sending import ANY_QUEUE, Wish
from pocketmq.errors import UsageError
from pocketmq.model import properties as names
from pocketmq.model.message import Message
from pocketmq.model.queue import MessageQueue


def wish_for(
    message: Message, queue: MessageQueue | None, selector: QueueSelector | None, selector_key: object
) -> Wish:
    """Messages with a sharding key go by its hash, unless something else is said."""
    if queue is None and selector is None and selector_key is None:
        return Wish(selector=by_hash) if names.SHARDING_KEY in message.properties else ANY_QUEUE
    if queue is not None:
        if selector is not None or selector_key is not None:
            raise UsageError("give a queue, or a selector with its key, but not both")
        return Wish(queue)
    return Wish(selector=selector or by_hash, key=selector_key)
