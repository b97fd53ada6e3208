"""What a slave refuses, with RocketMQ's codes: everything that adds messages to the log.

    sends, messages that are sent back, pops, acks    2   [REJECTREQUEST]
    the end of a transaction                          11
    the recall of a timed message                     16
    the reset of offsets                              1

Topics and groups may be changed, as in RocketMQ; the tables of the master replace them soon.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, NoReturn

from pocketmq.broker.requests.log_turn import Stage
from pocketmq.codes import RequestCode
from pocketmq.errors import ImpossibleRequest, NoPermission, PocketMQError, SlaveNotAvailable, SystemBusy
from pocketmq.net import Handler
from pocketmq.protocol.hot_headers import SendBatchHead, SendHead, SendV2Head

_WHY: Final = "this broker is a slave"
_busy: Final = partial(SystemBusy, f"[REJECTREQUEST]system busy, start flow control for a while, cause: {_WHY}")

REFUSED: Final[dict[RequestCode, Callable[[], PocketMQError]]] = {
    RequestCode.CONSUMER_SEND_MSG_BACK: _busy,
    RequestCode.SEND_REPLY_MESSAGE: _busy,
    RequestCode.SEND_REPLY_MESSAGE_V2: _busy,
    RequestCode.SEND_MESSAGE: _busy,
    RequestCode.END_TRANSACTION: partial(
        SlaveNotAvailable, f"Message store is slave mode, so end transaction is forbidden: {_WHY}"
    ),
    RequestCode.RECALL_MESSAGE: partial(NoPermission, f"recall failed, operation is forbidden: {_WHY}"),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: partial(ImpossibleRequest, "Can not reset offset in slave broker"),
}


def only_reads(tables: Iterable[Mapping[RequestCode, Handler]]) -> list[dict[RequestCode, Handler]]:
    """These handlers; those of refused requests refuse them."""
    return [{code: _refusing(code, handler) for code, handler in table.items()} for table in tables]


def _refusing(code: RequestCode, handler: Handler) -> Handler:
    make_error = REFUSED.get(code)
    return handler if make_error is None else partial(_refuse, make_error)


def refused_stages(stages: Iterable[type[Any]]) -> dict[type[Any], Stage]:
    """In place of everything that is staged: a refusal."""
    return dict.fromkeys([*stages, SendHead, SendV2Head, SendBatchHead], partial(_refuse, _busy))


def _refuse(make_error: Callable[[], PocketMQError], *_request: object) -> NoReturn:
    raise make_error()
