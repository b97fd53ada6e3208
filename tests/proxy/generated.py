"""Compiles rocketmq.proto to what the package contains: its descriptors, and the types of its messages for mypy.

python -m tests.proxy.generated      after a change of rocketmq.proto
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorSet

PACKAGE: Final = Path(__file__).parents[2] / "src" / "pocketmq" / "proxy"
SOURCE: Final = PACKAGE / "rocketmq.proto"
DESCRIPTORS: Final = PACKAGE / "rocketmq.binpb"
TYPES: Final = PACKAGE / "messages.pyi"

_SCALARS: Final = {
    Field.TYPE_STRING: "str",
    Field.TYPE_BYTES: "bytes",
    Field.TYPE_BOOL: "bool",
    Field.TYPE_INT32: "int",
    Field.TYPE_INT64: "int",
    Field.TYPE_FLOAT: "float",
}
_HEAD: Final = """# Types of the messages, made from rocketmq.proto by `python -m tests.proxy.generated`.

from collections.abc import Iterable, Mapping, MutableMapping, MutableSequence
from enum import IntEnum
from typing import Final, Self, TypeVar

_T = TypeVar("_T")

SERVICE: Final[str]
METHODS: Final[dict[str, tuple[type[_Message], type[_Message]]]]

class _Message:
    def HasField(self, name: str) -> bool: ...
    def ClearField(self, name: str) -> None: ...
    def WhichOneof(self, group: str) -> str | None: ...
    def CopyFrom(self, other: Self) -> None: ...
    def ByteSize(self) -> int: ...
    def SerializeToString(self) -> bytes: ...
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...

class Repeated(list[_T]):
    def add(self, **fields: object) -> _T: ...

class Timestamp(_Message):
    seconds: int
    nanos: int
    def __init__(self, *, seconds: int = ..., nanos: int = ...) -> None: ...

class Duration(_Message):
    seconds: int
    nanos: int
    def __init__(self, *, seconds: int = ..., nanos: int = ...) -> None: ...
"""


def compiled() -> bytes:
    """The descriptors of rocketmq.proto and of the files that it imports."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out.binpb")
        arguments = [f"-I{PACKAGE}", f"--descriptor_set_out={out}", "--include_imports", SOURCE.name]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *arguments], check=True)
        return out.read_bytes()


def types(descriptors: bytes) -> str:
    """The text of messages.pyi."""
    own = next(file for file in FileDescriptorSet.FromString(descriptors).file if file.name == SOURCE.name)
    lines = [_HEAD]
    for enum in own.enum_type:
        lines += [f"class {enum.name}(IntEnum):"]
        lines += [f"    {value.name} = {value.number}" for value in enum.value] + [""]
    for message in own.message_type:
        lines += [*_class(message), ""]
    return "\n".join(lines).rstrip() + "\n"


def _class(message: Any) -> Iterator[str]:
    yield f"class {message.name}(_Message):"
    arguments = []
    for field in message.field:
        kind, accepted = _kinds(message, field)
        yield f"    {field.name}: {kind}"
        arguments.append(f"{field.name}: {accepted} | None = ...")
    yield f"    def __init__(self, *, {', '.join(arguments)}) -> None: ..."


def _kinds(message: Any, field: Any) -> tuple[str, str]:
    """The type of a field, and that of its argument in the constructor."""
    name = field.type_name.rpartition(".")[2]
    if any(nested.name == name and nested.options.map_entry for nested in message.nested_type):
        return "MutableMapping[str, str]", "Mapping[str, str]"
    kind = _SCALARS.get(field.type) or ("int" if field.type == Field.TYPE_ENUM else name)
    if field.label == Field.LABEL_REPEATED:
        container = "Repeated" if field.type == Field.TYPE_MESSAGE else "MutableSequence"
        return f"{container}[{kind}]", f"Iterable[{kind}]"
    return kind, kind


if __name__ == "__main__":
    found = compiled()
    DESCRIPTORS.write_bytes(found)
    TYPES.write_text(types(found))
    subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", str(TYPES)], check=True)
