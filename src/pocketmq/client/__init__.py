"""The client: an async core and a blocking face with the same words.

    AsyncProducer, Producer       send messages, alone, in batches, in transactions; ask and answer
    Instance                      one client of a cluster: lines, routes, heartbeats, shared by all on one loop

Rules are pure and stand in files of their own: allocation, process queue, flow limits, retries, broker choice. What waits is async.
"""

from pocketmq.client.blocking_producer import BlockingTransaction, Producer
from pocketmq.client.hooks import ConsumeEvent, DecisionEvent, Hooks, SendEvent
from pocketmq.client.instance import Instance, Surroundings
from pocketmq.client.producer import AsyncProducer
from pocketmq.client.results import SendResult, SendStatus
from pocketmq.client.settings import ClientSettings, ProducerSettings
from pocketmq.client.transaction import Transaction
from pocketmq.client.transactions import TransactionListener, TransactionResult
from pocketmq.model.flags import TransactionState
from pocketmq.net.tls import client_context
from pocketmq.protocol.signing import Credentials

__all__ = [
    "AsyncProducer",
    "BlockingTransaction",
    "ClientSettings",
    "ConsumeEvent",
    "Credentials",
    "DecisionEvent",
    "Hooks",
    "Instance",
    "Producer",
    "ProducerSettings",
    "SendEvent",
    "SendResult",
    "SendStatus",
    "Surroundings",
    "Transaction",
    "TransactionListener",
    "TransactionResult",
    "TransactionState",
    "client_context",
]
