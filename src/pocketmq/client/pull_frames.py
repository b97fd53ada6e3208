"""Pull requests as bytes, from texts that are composed once for each queue.

    | prefix 8 | {"code":11,"extFields":{"consumerGroup":"g","topic":"T","queueId":"3","queueOffset":" … ","sysFlag":" … ",…},…} |
                   fixed texts, with this pull's offset, flags, committed offset and number in the gaps

A client that signs its requests has a second text for each queue: what is signed, with the same gaps but the number's. The signature
over it has a gap of its own in the first.

They say what `encode_command` would say for the same request, at a fraction of its cost.
"""

import struct
from collections.abc import Callable
from functools import partial
from typing import Final

from pocketmq.client.calls.asking import named
from pocketmq.client.links import Links
from pocketmq.codes import RequestCode
from pocketmq.protocol.api.pulling import PullMessage
from pocketmq.protocol.command import Command, encode_command
from pocketmq.protocol.fields import write_fields
from pocketmq.protocol.frames import PREFIX_SIZE
from pocketmq.protocol.signing import SIGNATURE, Credentials, signature_of, signed_content

PullWriter = Callable[[int, int, int, int], bytes]
"""Makes the whole frame of a pull of its offset, flags, committed offset and number. Any thread may do it."""

_pack_prefix = struct.Struct(">II").pack
_GAPS: Final = {"queueOffset": "%d", "sysFlag": "%d", "commitOffset": "%d", SIGNATURE: "%b"}
"""In the order in which they stand on the wire. Signed are they by name: the committed offset comes first."""


def pull_writer(links: Links, code: RequestCode, header: PullMessage, broker_name: str) -> PullWriter:
    """For all pulls that differ from this one in offset, flags and committed offset only, as the client of `links` sends them."""
    fields = links.signed_fields(write_fields(header) | named(broker_name)) or {}
    escaped = {name: _GAPS.get(name) or value.replace("%", "%%") for name, value in fields.items()}
    whole = encode_command(Command(int(code), escaped, opaque=0))[PREFIX_SIZE:]
    # Inside a JSON string every quote has a backslash before it, so this text is found at one place only.
    template = whole.replace(b',"opaque":0,', b',"opaque":%d,')
    if links.credentials is None:
        return partial(_frame, template)
    return partial(_signed_frame, template, signed_content(escaped, b""), links.credentials)


def _frame(template: bytes, offset: int, flags: int, committed: int, number: int) -> bytes:
    header = template % (offset, flags, committed, number)
    size = len(header)
    return _pack_prefix(4 + size, size) + header


def _signed_frame(
    template: bytes, content: bytes, credentials: Credentials, offset: int, flags: int, committed: int, number: int
) -> bytes:
    signature = signature_of(content % (committed, offset, flags), credentials.secret)
    header = template % (offset, flags, committed, signature, number)
    size = len(header)
    return _pack_prefix(4 + size, size) + header
