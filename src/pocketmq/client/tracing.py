"""Tracing: what happens to messages, written to the trace topic in RocketMQ's own records, where `mqadmin` and consoles find it.

    hooks ──► a record for each message ──► trace batches ── 20 of them, or 5 s ──► messages to RMQ_SYS_TRACE_TOPIC

A tracer has a client of its own, as Java's has, so that traces never stand in the way of messages; all tracers of a process share
it. When traces come faster than they go they are dropped and counted: watching never makes anybody wait.
"""

import asyncio
import logging

from msgspec.structs import replace

from pocketmq.client.hooks import ConsumeEvent, DecisionEvent, HookList, Hooks, SendEvent
from pocketmq.client.instance import Instance, Surroundings
from pocketmq.client.name_servers import parse_name_servers
from pocketmq.client.outgoing import Packer
from pocketmq.client.results import split_result
from pocketmq.client.rounds import Round
from pocketmq.client.sending import Sender
from pocketmq.client.settings import ClientSettings, ProducerSettings
from pocketmq.client.trace_batches import TraceBatches, TraceContext, TraceMessage
from pocketmq.errors import PocketMQError
from pocketmq.model import properties as names
from pocketmq.model.flags import TransactionState
from pocketmq.model.message import Message, StoredMessage
from pocketmq.net.peer import Peer
from pocketmq.protocol.api.transactions import CheckTransactionState
from pocketmq.protocol.trace_text import Decision, EndTransaction, Outcome, Pub, SubAfter, SubBefore, TracedType

log = logging.getLogger("pocketmq.client")

LOOK_S = 0.5
"""How often it is looked whether there is something to send."""
_DECISIONS = {
    TransactionState.COMMIT: Decision.COMMIT,
    TransactionState.ROLLBACK: Decision.ROLLBACK,
    TransactionState.UNKNOWN: Decision.UNKNOWN,
}
_REQUEST_ID = "trace request id"
