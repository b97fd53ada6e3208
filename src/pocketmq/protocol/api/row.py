"""One row of the API table: a request code, its two headers, and who serves it."""

from enum import Flag, auto

import msgspec

from pocketmq.codes import RequestCode
from pocketmq.protocol.fields import Fields, NoFields


class Server(Flag):
    """Who answers a request in a RocketMQ cluster. Some are asked of a broker, which asks the client in turn."""

    NAME_SERVER = auto()
    BROKER = auto()
    CLIENT = auto()


class Api(msgspec.Struct, frozen=True):
    """A request as it is declared. `response` is the header of success; a failure may leave all of it out."""

    code: RequestCode
    request: type[Fields] = NoFields
    response: type[Fields] = NoFields
    served_by: Server = Server.BROKER
    oneway: bool = False
    """RocketMQ never answers this request. Others may be sent one-way as well, by the flag of the command."""
