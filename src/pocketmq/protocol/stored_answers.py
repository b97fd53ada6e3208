"""The answer that comes by the thousand, decoded in one go: a message is stored, here is where.

    header ── read_stored ──► StoredAnswer(opaque=7, ext=StoredAt(msgId="7F…", queueId="3", queueOffset="12", …))
        └─ NOT_STORED ──► decode_command, the way of everything else, with the exact error

Raised for other codes, for requests, for fields that are not named here, for numbers that should be texts: for whatever is
unusual. What is given says the same as the command that the other way would give.
"""

from typing import Final, Literal

import msgspec

from pocketmq.codes import ResponseCode
from pocketmq.protocol.command import RESPONSE
from pocketmq.protocol.header import Int32

NOT_STORED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What is raised by `read_stored` for a header that says something else."""

assert (ResponseCode.SUCCESS, RESPONSE) == (0, 1), "what the literals below say"


class StoredAt(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The ext fields by their names on the wire. Numbers are left as texts: who wants them reads them."""

    msgId: str  # noqa: N815
    queueId: str  # noqa: N815
    queueOffset: str  # noqa: N815
    transactionId: str | None = None  # noqa: N815
    recallHandle: str | None = None  # noqa: N815
    MSG_REGION: str | None = None
    TRACE_ON: str | None = None


class StoredAnswer(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """An answer of success to a send. What nobody looks at is read as well: it has to be well formed."""

    code: Literal[0]
    flag: Literal[1]
    opaque: Int32
    extFields: StoredAt  # noqa: N815
    version: Int32 = 0
    language: str | None = None
    serializeTypeCurrentRPC: str | None = None  # noqa: N815
    remark: None = None


read_stored: Final = msgspec.json.Decoder(StoredAnswer).decode
"""The answer in a JSON header of a frame without a body. Called once per message, so it is the decoder itself."""
