"""Records in a buffer: their starts, their fields, and which are regular."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from tests.spark.made_records import V6, compressed, made, record_runs

from pocketmq.codes import SysFlag
from pocketmq.errors import ProtocolError
from pocketmq.protocol.record import decode_records
from pocketmq.spark.decode.records import Records, regular_layout


def test_an_empty_buffer_has_no_records() -> None:
    records = Records.find(b"")

    assert len(records) == 0
    assert records.field("queue_offset").tolist() == []


@given(record_runs())
def test_every_record_is_found_with_its_fields(run: list[bytes]) -> None:
    buffer = b"".join(run)

    records = Records.find(buffer)

    messages = decode_records(buffer)
    assert [buffer[at : at + len(one)] for at, one in zip(records.starts.tolist(), run, strict=True)] == run
    assert records.field("queue_offset").tolist() == [message.queue_offset for message in messages]
    assert records.field("sys_flag").tolist() == [message.sys_flag for message in messages]
    assert records.field("log_offset").tolist() == [message.log_offset for message in messages]


@given(record_runs(), st.data())
def test_a_truncated_buffer_is_refused(run: list[bytes], data: st.DataObject) -> None:
    buffer = b"".join(run)
    size = data.draw(st.integers(1, len(run[-1]) - 1))

    with pytest.raises(ProtocolError):
        Records.find(buffer[: len(buffer) - size])


@pytest.mark.parametrize("size", [0, 1, 90, 2**31, 2**32 - 1])
def test_an_impossible_size_is_refused(size: int) -> None:
    good = made(0)

    with pytest.raises(ProtocolError):
        Records.find(good + size.to_bytes(4, "big") + good[4:])


@pytest.mark.parametrize("tail", [b"\0", b"\0" * 3, b"\0" * 200])
def test_bytes_after_the_last_record_are_refused(tail: bytes) -> None:
    with pytest.raises(ProtocolError):
        Records.find(made(0) + tail)


def test_the_layout_gives_the_fields_of_regular_records() -> None:
    buffer = made(0, b"one", b"TAGS\x01a\x02") + made(1, b"", topic="other")

    regular, layout = regular_layout(Records.find(buffer), irregular_flags=0)

    assert regular.all()
    bodies = zip(layout.body_at.tolist(), layout.body_end.tolist(), strict=True)
    assert [buffer[start:end] for start, end in bodies] == [b"one", b""]
    topics = zip(layout.body_end.tolist(), layout.topic_end.tolist(), strict=True)
    assert [buffer[start + 1 : end] for start, end in topics] == [b"orders", b"other"]
    texts = zip(layout.topic_end.tolist(), layout.end.tolist(), strict=True)
    assert [buffer[start + 2 : end] for start, end in texts] == [b"TAGS\x01a\x02", b""]


def test_irregular_records_are_recognised() -> None:
    run = [
        made(0),
        compressed(1, b"x" * 9),
        made(2, born_host=V6),
        made(3, store_host=V6),
        made(4, topic="y" * 200),
        made(5),
    ]
    records = Records.find(b"".join(run))

    assert regular_layout(records, SysFlag.COMPRESSED)[0].tolist() == [True, False, False, False, False, True]
    assert regular_layout(records, 0)[0].tolist() == [True, True, False, False, False, True]


@pytest.mark.parametrize("at", [84, 88, 88 + 5 + 1 + 6])
@given(data=st.data())
def test_an_inconsistent_length_makes_a_record_irregular(at: int, data: st.DataObject) -> None:
    record = bytearray(made(0, b"", b"TAGS\x01a\x02"))
    at = min(at, len(record) - 1)
    record[at] = data.draw(st.integers(0, 255).filter(lambda octet: octet != record[at]))
    buffer = bytes(record) + made(1)

    regular, layout = regular_layout(Records.find(buffer), irregular_flags=0)

    assert regular[1]
    if not regular[0]:
        assert len(layout.end) == 1
