"""Ext fields that any request may carry beside its own: where it is meant to go, and who signs it.

Headers do not repeat them. `read_fields(Envelope, command.ext)` reads them from any request.
"""

from msgspec import field

from pocketmq.protocol.fields import Fields
from pocketmq.protocol.header import Int32


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
