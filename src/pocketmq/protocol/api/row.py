"""One row of the API table: a request code, its two headers, and which server handles it.

`Envelope` has the ext fields that any request may have besides its own: target and signature. Headers do not repeat them;
`read_fields(Envelope, command.ext)` reads them from any request.
"""

from enum import Flag, auto

import msgspec
from msgspec import field

from pocketmq.codes import RequestCode
from pocketmq.protocol.fields import Fields, Int32, NoFields


class Server(Flag):
    """Which server handles a request. Some go to a broker, which forwards them to a client."""

    NAME_SERVER = auto()
    BROKER = auto()
    CLIENT = auto()


class Api(msgspec.Struct, frozen=True):
    """The declaration of a request. `response` is the header of a success; a failure may have none."""

    code: RequestCode
    request: type[Fields] = NoFields
    response: type[Fields] = NoFields
    served_by: Server = Server.BROKER
    oneway: bool = False
    """RocketMQ never responds to this request. Other requests may be sent one-way too, with the flag of the command."""


class Envelope(Fields):
    """`request_type` 0 marks a client that reads streams: lite pull. A `logical` topic is a static one."""

    broker_name: str | None = field(default=None, name="bname")
    namespace: str | None = field(default=None, name="ns")
    namespaced: bool | None = field(default=None, name="nsd")
    logical: bool | None = field(default=None, name="lo")
    oneway: bool | None = field(default=None, name="oway")
    request_type: Int32 | None = field(default=None, name="ReqT")
    zone_name: str | None = field(default=None, name="__ZONE_NAME")
    zone_mode: str | None = field(default=None, name="__ZONE_MODE")
    access_key: str | None = field(default=None, name="AccessKey")
    security_token: str | None = field(default=None, name="SecurityToken")
    signature: str | None = field(default=None, name="Signature")
