"""Send-backs: what becomes of a message whose consumption failed.

    failed ──► send back (code 36), by delay level ──► the broker: %RETRY%group after a while, or %DLQ%group
                  │ the broker refuses, or an old one does not know the message
                  └──► sent again as a plain message to %RETRY%group, which says how often it was tried
                          │ that fails too
                          └──► tried again right here after 5 s

A dead letter that says why it died always takes the second road: a send-back carries no properties. An orderly consumer
takes it as well: its broker sees the locks of the group and knows a message to %RETRY%group for one that was given up.

    delay level    -1 the dead letters · 0 the broker decides: 3, 4, 5 … · n that level
"""

from typing import Final

import msgspec

from pocketmq.model import properties as names
from pocketmq.model.flags import SysFlag
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import GroupName, TopicName, retry_topic
from pocketmq.model.retries import FIRST_RETRY_LEVEL, MAX_RECONSUME_TIMES, UNLIMITED

LOCAL_RETRY_SECONDS: Final = 5.0
"""A message that could not be sent back is consumed again here, after so long."""
OVERDUE_LEVEL: Final = 3
"""Delay level of messages that a clean-up sends back because their listener takes too long."""
SEND_BACK_TIMEOUT_MS: Final = 5_000

REASON: Final = "DEAD_LETTER_REASON"
"""Property of a dead letter that says why it is one."""
MAX_REASON_CHARS: Final = 500

_OVER: Final = frozenset((*names.DELAYING_PROPERTIES, names.TRANSACTION_PREPARED))
"""Properties of what lies behind the message; they would make the broker delay it once more, or wait for a decision."""
_FLAGS_OF_BODY: Final = SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK | SysFlag.MULTI_TAGS


def max_reconsume_times(configured: int | None, *, is_orderly: bool) -> int:
    """How often a message is tried again. None, or -1 as Java says it: 16 times, in order without end."""
    if configured is not None and configured >= 0:
        return configured
    return UNLIMITED if is_orderly else MAX_RECONSUME_TIMES


class Resend(msgspec.Struct, frozen=True):
    """A failed message as a plain one. Both counts go into the header of the send, not among the properties."""

    topic: TopicName
    body: bytes
    flag: int
    sys_flag: int
    properties: dict[str, str]
    reconsume_times: int
    max_reconsume_times: int


def resend(message: StoredMessage, group: GroupName, max_times: int) -> Resend:
    """For another attempt, after the delay that the broker itself would have chosen. It becomes a dead letter after the last."""
    delay = {names.DELAY: str(FIRST_RETRY_LEVEL + message.reconsume_times)}
    return _resend(message, group, delay, max_times)


def resend_dead(message: StoredMessage, group: GroupName, reason: str = "") -> Resend:
    """For the dead letters, at once: it says that it may not be tried more often than it was."""
    words = _one_line(reason)
    return _resend(message, group, {REASON: words} if words else {}, message.reconsume_times)


def _resend(message: StoredMessage, group: GroupName, added: dict[str, str], max_times: int) -> Resend:
    kept = {name: value for name, value in message.properties.items() if name not in _OVER}
    kept.setdefault(names.ORIGIN_MESSAGE_ID, message.message_id)
    kept[names.RETRY_TOPIC] = original_topic(message)
    return Resend(
        topic=retry_topic(group),
        body=message.body,
        flag=message.flag,
        sys_flag=message.sys_flag & _FLAGS_OF_BODY,
        properties=kept | added,
        reconsume_times=message.reconsume_times + 1,
        max_reconsume_times=max_times,
    )


def original_topic(message: StoredMessage) -> str:
    """The topic that its producer sent it to, which is what a listener sees of a retried message."""
    return message.properties.get(names.RETRY_TOPIC) or message.topic


def _one_line(reason: str) -> str:
    """`reason` as a property can hold it: no separators, not too long."""
    clean = "".join(char if char.isprintable() else " " for char in reason)
    return " ".join(clean.split())[:MAX_REASON_CHARS]
