"""The outcome of a call. Clients find it in the status of the response; gRPC's own status stays OK.

Refused(code, text)        raised by the rules of this package
an error of a broker ──► status_of ──► the code that Apache RocketMQ's proxy has for it, with the broker's own words
"""

from typing import Final

from pocketmq.errors import (
    CallTimedOut,
    FlowControl,
    FlushDiskTimeout,
    FlushSlaveTimeout,
    GroupNotFound,
    InvalidName,
    NoPermission,
    PocketMQError,
    RequestNotSupported,
    SlaveNotAvailable,
    SystemBusy,
    TooManyCalls,
    TopicNotFound,
)
from pocketmq.proxy.messages import Code, Status

OK: Final = Status(code=Code.OK, message="OK")


class Refused(Exception):
    """A call that is answered with this status."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text

    def __str__(self) -> str:
        return f"{self.code.name}: {self.text}"

    @property
    def status(self) -> Status:
        return Status(code=self.code, message=self.text)


_CODES: Final[dict[type[PocketMQError], Code]] = {
    SystemBusy: Code.TOO_MANY_REQUESTS,
    FlowControl: Code.TOO_MANY_REQUESTS,
    TooManyCalls: Code.TOO_MANY_REQUESTS,
    TopicNotFound: Code.TOPIC_NOT_FOUND,
    GroupNotFound: Code.CONSUMER_GROUP_NOT_FOUND,
    InvalidName: Code.ILLEGAL_TOPIC,
    NoPermission: Code.FORBIDDEN,
    RequestNotSupported: Code.NOT_IMPLEMENTED,
    CallTimedOut: Code.PROXY_TIMEOUT,
    FlushDiskTimeout: Code.MASTER_PERSISTENCE_TIMEOUT,
    FlushSlaveTimeout: Code.SLAVE_PERSISTENCE_TIMEOUT,
    SlaveNotAvailable: Code.HA_NOT_AVAILABLE,
}
"""All other errors are INTERNAL_SERVER_ERROR."""


def status_of(error: Refused | PocketMQError) -> Status:
    """The status of a failed call."""
    if isinstance(error, Refused):
        return error.status
    return Status(code=_CODES.get(type(error), Code.INTERNAL_SERVER_ERROR), message=str(error))


def summary(statuses: list[Status]) -> Status:
    """The status of a call with several results."""
    codes = {status.code for status in statuses}
    if len(codes) == 1:
        return statuses[0]
    return Status(code=Code.MULTIPLE_RESULTS, message="the results differ: each has a status of its own")
