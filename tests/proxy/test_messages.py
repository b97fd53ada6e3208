"""The generated files of the messages are those of rocketmq.proto."""

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from tests.proxy.generated import DESCRIPTORS, TYPES, compiled, types

from pocketmq.proxy import messages as m


def test_the_descriptors_are_those_of_the_source() -> None:
    assert _own(DESCRIPTORS.read_bytes()) == _own(compiled()), "run `python -m tests.proxy.generated`"


def test_the_types_are_those_of_the_descriptors() -> None:
    def words(text: str) -> str:
        return "".join(text.replace(",", "").split())  # ruff wraps long lines, with a last comma

    assert words(TYPES.read_text()) == words(types(DESCRIPTORS.read_bytes())), "run `python -m tests.proxy.generated`"


def _own(descriptors: bytes) -> object:
    """The file itself: those that it imports differ between versions of protobuf."""
    return [file for file in FileDescriptorSet.FromString(descriptors).file if file.name == "rocketmq.proto"]


def test_a_message_has_the_bytes_that_official_clients_send() -> None:
    settings = m.Settings(
        client_type=m.ClientType.PRODUCER, publishing=m.Publishing(topics=[m.Resource(name="T")], max_body_size=5)
    )

    # field 1: varint 1; field 5: 7 bytes with field 1 (3 bytes: field 2 "T") and field 2 (varint 5)
    assert settings.SerializeToString() == bytes.fromhex("0801 2a07 0a03 120154 1005")


def test_names_that_an_official_client_registers_do_not_clash() -> None:
    from google.protobuf import descriptor_pool

    file = FileDescriptorSet.FromString(DESCRIPTORS.read_bytes()).file
    pool = descriptor_pool.DescriptorPool()
    for one in file:
        pool.AddSerializedFile(one.SerializeToString())

    assert pool.FindMessageTypeByName("apache.rocketmq.v2.Message") is not m.Message.DESCRIPTOR  # type: ignore[attr-defined]
