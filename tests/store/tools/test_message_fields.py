import pytest
from tests.store.made_store import HOST, MadeStore

from pocketmq.codes import Compression, SysFlag
from pocketmq.model.human import local_time
from pocketmq.model.message import StoredMessage
from pocketmq.protocol.compression import compress, with_compression
from pocketmq.protocol.record import decode_record
from pocketmq.store.tools.message_fields import BodyForm, fields_of


def message(body: bytes = b"hello", sys_flag: int = 0, **extra: str) -> StoredMessage:
    store = MadeStore()
    at = store.append("Orders", 3, body=body, sys_flag=sys_flag, **extra)  # type: ignore[arg-type]
    return decode_record(store.records[at])


def test_a_message_has_all_its_fields() -> None:
    fields = fields_of(message(tag="red", keys="a b"), BodyForm.TEXT)

    assert fields["topic"] == "Orders"
    assert (fields["queue"], fields["queue_offset"], fields["log_offset"]) == (3, 0, 0)
    assert (fields["tags"], fields["keys"]) == ("red", ["a", "b"])
    assert fields["born_host"] == fields["store_host"] == "127.0.0.1:10911"
    assert fields["message_id"] == f"7F000001{0:024X}"
    assert fields["offset_id"] == (HOST + bytes(8)).hex().upper()
    assert fields["properties"]["TAGS"] == "red"
    assert fields["body"] == "hello"
    assert fields["stored"] == local_time(fields["store_ms"])


@pytest.mark.parametrize(
    ("form", "shown"),
    [(BodyForm.TEXT, "é\\xff"), (BodyForm.HEX, "c3a9ff"), (BodyForm.BASE64, "w6n/")],
)
def test_a_body_is_shown_in_the_requested_format(form: BodyForm, shown: str) -> None:
    assert fields_of(message("é".encode() + b"\xff"), form)["body"] == shown


def test_a_body_that_is_json_is_shown_as_its_value() -> None:
    assert fields_of(message(b'{"a": [1, null]}'), BodyForm.JSON)["body"] == {"a": [1, None]}


def test_a_body_that_is_not_json_is_shown_as_text_with_the_reason() -> None:
    fields = fields_of(message(b"{oops"), BodyForm.JSON)

    assert fields["body"] == "{oops"
    assert fields["body_error"].startswith("the body is not JSON: ")


def test_a_body_may_be_omitted() -> None:
    assert "body" not in fields_of(message(), BodyForm.NONE)


@pytest.mark.parametrize("kind", list(Compression))
def test_a_compressed_body_is_decompressed(kind: Compression) -> None:
    packed = compress(b"x" * 10_000, kind)

    fields = fields_of(message(packed, with_compression(0, kind)), BodyForm.TEXT)

    assert fields["body"] == "x" * 10_000


def test_a_body_that_cannot_be_decompressed_has_a_reason() -> None:
    fields = fields_of(message(b"not zlib", with_compression(0, Compression.ZLIB)), BodyForm.TEXT)

    assert fields["body"] is None
    assert fields["body_error"]


@pytest.mark.parametrize(
    ("sys_flag", "state"),
    [
        (0, "none"),
        (SysFlag.TRANSACTION_PREPARED, "prepared"),
        (SysFlag.TRANSACTION_COMMIT, "commit"),
        (SysFlag.TRANSACTION_ROLLBACK, "rollback"),
    ],
)
def test_the_state_of_a_transaction_has_a_name(sys_flag: int, state: str) -> None:
    assert fields_of(message(sys_flag=sys_flag), BodyForm.NONE)["transaction"] == state
