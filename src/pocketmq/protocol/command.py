"""A command: one request or response, whichever way its header is encoded.

    Command ◄── decode_command ── Frame      a header's encoding is told by its own frame
    Command ── encode_command ──► bytes

`ext` holds the fields of the particular request as texts, in the order of the wire; `protocol.fields` turns them into typed
headers. Everything that was decoded can be encoded again, codes and fields that we do not know included.
"""

import msgspec

from pocketmq.codes import VERSION, HeaderEncoding, Language, ResponseCode
from pocketmq.errors import RemoteError, error_for
from pocketmq.protocol import header_binary, header_json
from pocketmq.protocol.frames import Frame, join_frame

RESPONSE = 1
"""Flag bit: this is an answer."""
ONEWAY = 2
"""Flag bit: no answer must be sent."""

_JSON = int(HeaderEncoding.JSON)
_BINARY = HeaderEncoding.ROCKETMQ


class Command(msgspec.Struct):
    """`code` is a request code, or a response code in a response. No body is an empty one; Java reads both as null."""

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
        """An answer to this request, in its encoding."""
        return Command(code, ext, body, remark, RESPONSE, self.opaque, encoding=self.encoding)

    def error(self) -> RemoteError | None:
        """The failure that this response stands for; None when it reports success."""
        return None if self.code == ResponseCode.SUCCESS else error_for(self.code, self.remark)


def decode_command(frame: Frame) -> Command:
    """The command in `frame`; ProtocolError when its header is not one."""
    encoding, header, body = frame
    if encoding == _JSON:
        code, ext, remark, flag, opaque, version, language = header_json.decode(header)
        return Command(code, ext, body, remark, flag, opaque, version, language)
    code, ext, remark, flag, opaque, version, language = header_binary.decode(header)
    return Command(code, ext, body, remark, flag, opaque, version, language, _BINARY)


def encode_command(command: Command) -> bytes:
    """The whole frame of `command`."""
    codec = header_json if command.encoding == _JSON else header_binary
    header = codec.encode(
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
