"""A command: one request or response, with either header encoding.

    Command ◄── decode_command ── Frame      the frame names the encoding of its header
    Command ── encode_command ──► bytes

`ext` contains the fields of the request as texts, in wire order; `protocol.fields` converts them to typed headers. Every decoded command
can be encoded again, including unknown codes and fields.
"""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from pocketmq.codes import VERSION, HeaderEncoding, Language, ResponseCode
from pocketmq.errors import RemoteError, error_for
from pocketmq.protocol.frames import PREFIX_SIZE, Frame, join_frame
from pocketmq.protocol.header_encodings import decode_binary, decode_json, encode_binary, encode_json

RESPONSE = 1
"""Flag bit of a response."""
ONEWAY = 2
"""Flag bit of a one-way request, which gets no response."""

_JSON = int(HeaderEncoding.JSON)
_BINARY = HeaderEncoding.ROCKETMQ


class Command(msgspec.Struct):
    """`code` is a request code, or in a response a response code. A missing body is empty; Java reads both as null."""

    code: int
    ext: dict[str, str] | None = None
    body: bytes = b""
    remark: str | None = None
    flag: int = 0
    opaque: int = 0
    version: int = VERSION
    language: Language = Language.PYTHON
    encoding: HeaderEncoding = HeaderEncoding.JSON

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & ONEWAY)

    def reply(
        self,
        code: int = ResponseCode.SUCCESS,
        remark: str | None = None,
        ext: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> "Command":
        """A response to this request, with its encoding."""
        return Command(code, ext, body, remark, RESPONSE, self.opaque, encoding=self.encoding)

    def error(self) -> RemoteError | None:
        """The error of this response; None for success."""
        return None if self.code == ResponseCode.SUCCESS else error_for(self.code, self.remark)


def decode_command(frame: Frame) -> Command:
    """Decode a frame. ProtocolError if its header is invalid."""
    encoding, header, body = frame
    if encoding == _JSON:
        code, ext, remark, flag, opaque, version, language = decode_json(header)
        return Command(code, ext, body, remark, flag, opaque, version, language)
    code, ext, remark, flag, opaque, version, language = decode_binary(header)
    return Command(code, ext, body, remark, flag, opaque, version, language, _BINARY)


def encode_command(command: Command) -> bytes:
    """Encode a command as a frame."""
    encode = encode_json if command.encoding == _JSON else encode_binary
    header = encode(
        (
            command.code,
            command.ext,
            command.remark,
            command.flag,
            command.opaque,
            command.version,
            command.language,
        )
    )
    return join_frame(command.encoding, header, command.body)


def header_template(command: Command, gaps: Mapping[str, str] = MappingProxyType({})) -> bytes:
    """The JSON header of a command as a format. Its gaps are the ext fields in `gaps`, in wire order, and then the number."""
    escaped = None
    if command.ext is not None:
        pairs = command.ext.items()
        escaped = {name.replace("%", "%%"): gaps.get(name) or value.replace("%", "%%") for name, value in pairs}
    header = encode_command(replace(command, ext=escaped, opaque=0))[PREFIX_SIZE:]
    # Inside a JSON string every quote has a backslash before it, so this text occurs only once.
    return header.replace(b',"opaque":0,', b',"opaque":%d,')
