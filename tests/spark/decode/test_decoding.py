"""Decoding by columns equals decoding record by record: for random records, and for those of Apache RocketMQ."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from tests.golden import captured, needs_golden
from tests.spark.made_records import QUEUE, STORE_MS, V6, compressed, made, record_runs, row_of
from tests.twins import twin  # noqa: F401

from pocketmq.codes import Compression, RequestCode, SysFlag
from pocketmq.errors import ProtocolError
from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.protocol.batch import encode_batch
from pocketmq.protocol.record import decode_records
from pocketmq.spark.arrow import pa
from pocketmq.spark.decode.decoding import Decoder, Pulled
from pocketmq.spark.schema import COLUMNS, Name, NeverNull

pytestmark = pytest.mark.usefixtures("twin")

ALL = tuple(Name)
NEVER_NULL = NeverNull(frozenset(column.name for column in COLUMNS if not column.may_be_null), values=True)
EVERYTHING = QueueRange(QUEUE, 0, 2**62)
ANSWERS = {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE}


def rows(decoder: Decoder, *pulls: Pulled) -> list[dict[str, Any]]:
    batches = list(decoder.batches(pulls))
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema.equals(decoder.schema)
    return [row for batch in batches for row in batch.to_pylist()]


def decoded(run: Sequence[bytes], columns: Sequence[Name] = ALL, **options: Any) -> list[dict[str, Any]]:
    return rows(Decoder(columns, **options), Pulled(EVERYTHING, b"".join(run)))


@given(record_runs())
def test_all_columns_equal_those_of_the_record_decoder(run: list[bytes]) -> None:
    assert decoded(run) == [row_of(message) for message in decode_records(b"".join(run))]


@given(record_runs())
def test_columns_that_are_never_null_have_the_same_values(run: list[bytes]) -> None:
    assert decoded(run, never_null=NEVER_NULL) == decoded(run)


@given(record_runs())
def test_records_in_memory_of_the_task_are_decoded_equally(run: list[bytes]) -> None:
    memory = bytearray(b"".join(run))

    batches = list(Decoder(ALL).batches([Pulled(EVERYTHING, memoryview(memory))]))
    memory[:] = bytes(len(memory))  # decoded columns do not refer to it

    assert [row for batch in batches for row in batch.to_pylist()] == decoded(run)


@given(record_runs(), st.lists(st.sampled_from(ALL), min_size=1, unique=True))
def test_any_columns_in_any_order_are_decoded_alone(run: list[bytes], columns: list[Name]) -> None:
    found = decoded(run, columns)

    expected = [row_of(message) for message in decode_records(b"".join(run))]
    assert found == [{name: row[name] for name in columns} for row in expected]
    assert [list(row) for row in found] == [columns] * len(run)


@needs_golden
def test_messages_of_apache_brokers_are_decoded_equally() -> None:
    bodies = [frame.command.body for frame in captured("wire/**/*.jsonl") if frame.answers in ANSWERS]
    bodies = [bytes(body) for body in bodies if body]
    assert len(bodies) > 100

    for body in bodies:
        expected = [row_of(m) for m in decode_records(body) if not m.sys_flag & SysFlag.TRANSACTION_PREPARED]
        assert rows(Decoder(ALL), Pulled(EVERYTHING, body)) == expected
    together = [Pulled(EVERYTHING, body) for body in bodies]
    assert len(rows(Decoder(ALL), *together)) == sum(len(decode_records(body)) for body in bodies)


@pytest.mark.parametrize("kind", list(Compression))
def test_compressed_bodies_are_inflated_in_order(kind: Compression) -> None:
    found = decoded([made(0, b"a"), compressed(1, b"b" * 5000, kind), made(2, b"c")])

    assert [row["value"] for row in found] == [b"a", b"b" * 5000, b"c"]
    assert [row["queueOffset"] for row in found] == [0, 1, 2]


def test_a_compressed_body_is_not_inflated_if_not_requested() -> None:
    damaged = made(0, b"no zlib stream", sys_flag=SysFlag.COMPRESSED)

    assert decoded([damaged], [Name.QUEUE_OFFSET]) == [{"queueOffset": 0}]


@pytest.mark.parametrize("sys_flag", [SysFlag.COMPRESSED, SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK])
def test_a_body_that_cannot_be_inflated_stays_as_stored(sys_flag: int, caplog: pytest.LogCaptureFixture) -> None:
    run = [made(0), *(made(at, b"no zlib stream", sys_flag=sys_flag) for at in (1, 2)), made(3, b"next")]

    assert [row["value"] for row in decoded(run, [Name.VALUE])] == [
        b"hello",
        b"no zlib stream",
        b"no zlib stream",
        b"next",
    ]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "Cannot read the body at orders, queue 3, offset 1" in caplog.text


def test_bodies_that_inflate_beyond_the_limit_are_split_into_batches() -> None:
    run = [made(0, b"s"), *(compressed(n, bytes([n]) * 1000) for n in range(1, 6)), made(6, b"e")]
    decoder = Decoder([Name.QUEUE_OFFSET, Name.VALUE], max_inflated_bytes=2500)

    batches = [batch.to_pydict() for batch in decoder.batches([Pulled(EVERYTHING, b"".join(run))])]

    assert [batch["queueOffset"] for batch in batches] == [[0, 1, 2], [3, 4], [5, 6]]
    assert [len(value) for batch in batches for value in batch["value"]] == [1, *[1000] * 5, 1]


def test_one_body_beyond_the_limit_is_a_batch_of_its_own() -> None:
    decoder = Decoder([Name.VALUE], max_inflated_bytes=10)

    batches = list(decoder.batches([Pulled(EVERYTHING, compressed(0, b"a" * 99) + compressed(1, b"b" * 99))]))

    assert [batch.num_rows for batch in batches] == [1, 1]


def test_ids_of_messages_without_a_producers_id_are_the_brokers() -> None:
    given_id = "7F000001129C4E0E2F2A49F747F30001"

    found = decoded(
        [made(7), made(8, properties=f"UNIQ_KEY\x01{given_id}\x02".encode()), made(9, store_host=V6)], [Name.MSG_ID]
    )

    ids = [row["msgId"] for row in found]
    assert ids[0] == "0A0000010000A33A0000000000000834"
    assert ids[1] == given_id
    assert len(ids[2]) == 56


def test_only_the_range_of_each_pull_counts() -> None:
    other = MessageQueue("orders", "broker-b", 3)
    pulls = [
        Pulled(QueueRange(QUEUE, 1, 3), b"".join(made(n) for n in range(5))),
        Pulled(QueueRange(other, 0, 1), made(0) + made(1)),
        Pulled(QueueRange(QUEUE, 3, 5), b""),
        Pulled(QueueRange(QUEUE, 7, 8), made(7)),
    ]

    found = rows(Decoder([Name.BROKER_NAME, Name.QUEUE_OFFSET]), *pulls)

    assert [tuple(row.values()) for row in found] == [
        ("broker-a", 1),
        ("broker-a", 2),
        ("broker-b", 0),
        ("broker-a", 7),
    ]


def test_an_empty_range_has_no_batch() -> None:
    assert rows(Decoder(ALL), Pulled(QueueRange(QUEUE, 9, 10), made(0))) == []
    assert rows(Decoder(ALL), Pulled(EVERYTHING, b"")) == []
    assert rows(Decoder(ALL)) == []


@pytest.mark.parametrize(
    ("flag", "count"),
    [
        (0, 1),
        (SysFlag.TRANSACTION_COMMIT, 1),
        (SysFlag.TRANSACTION_PREPARED, 0),
        (SysFlag.TRANSACTION_ROLLBACK, 0),
    ],
)
def test_of_transactions_only_the_committed_count(flag: int, count: int) -> None:
    assert len(decoded([made(0, sys_flag=flag)])) == count


def test_tags_are_compared_by_their_text() -> None:
    # "Aa" and "BB" have the same hash in Java, so a broker returns both.
    run = [
        made(0, properties=b"TAGS\x01Aa\x02"),
        made(1, properties=b"TAGS\x01BB\x02"),
        made(2),
        made(3, properties=b"TAGS\x01c\x02"),
    ]

    found = decoded(run, [Name.QUEUE_OFFSET], tags=["Aa", "c"])

    assert [row["queueOffset"] for row in found] == [0, 3]


def test_topics_lose_their_namespace() -> None:
    run = [
        made(0, topic="team%orders"),
        made(1, topic="%RETRY%team%g"),
        made(2, topic="plain"),
        made(3, topic="team%" + "y" * 200),
    ]

    found = decoded(run, [Name.TOPIC], namespace="team")

    assert [row["topic"] for row in found] == ["orders", "%RETRY%g", "plain", "y" * 200]


@pytest.mark.parametrize("born_ms", [2**63 - 1, -(2**63)])
def test_a_time_beyond_sparks_range_becomes_the_nearest_one(born_ms: int) -> None:
    run = [made(0, born_ms=born_ms), made(1, born_ms=born_ms, born_host=V6)]

    (batch,) = Decoder([Name.BORN_TIMESTAMP]).batches([Pulled(EVERYTHING, b"".join(run))])

    micros = batch.column(0).cast(pa.int64()).to_pylist()
    assert micros[0] == micros[1]
    assert abs(micros[0]) == (2**63 - 1) // 1000 * 1000


def test_texts_that_are_not_utf8_are_replaced_as_java_does() -> None:
    found = decoded([made(0, properties=b"A\x01\xff\x02"), made(1, properties=b"B\x011\x02")], [Name.PROPERTIES])

    assert [dict(row["properties"]) for row in found] == [{"A": "�"}, {"B": "1"}]


def test_a_topic_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(ProtocolError, match="not UTF-8"):
        decoded([made(0, topic=b"\xff\xfe")], [Name.TOPIC])


WHOLE = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
THREE = encode_batch([(0, b"a", b"")] * 3)


@pytest.mark.parametrize("behind", [[], [made(3, b"next")]])
def test_a_batch_before_a_gap_is_one_row_and_logged_once(behind: list[bytes], caplog: pytest.LogCaptureFixture) -> None:
    """A filter at the broker leaves gaps, and a sender may choose flags and body: neither stops a query."""
    run = [made(0, THREE, sys_flag=WHOLE), *behind]

    found = decoded(run, [Name.VALUE])
    assert [row["value"] for row in found] == [THREE, *(b"next" for _ in behind)]
    assert caplog.text.count("is an inner batch of 3 messages") == 1


@pytest.mark.parametrize("flags", [WHOLE, WHOLE | SysFlag.COMPRESSED])
def test_a_batch_of_one_message_is_one_row(flags: int) -> None:
    one = encode_batch([(0, b"a", b"")])
    run = [made(0, one, sys_flag=flags), made(1, b"next")]

    assert [row["value"] for row in decoded(run, [Name.VALUE])] == [one, b"next"]


@pytest.mark.parametrize("body", [THREE, b"no batch at all"])
@pytest.mark.parametrize("more_flags", [0, SysFlag.COMPRESSED])
def test_a_message_with_batch_flags_but_one_offset_is_one_row(body: bytes, more_flags: int) -> None:
    run = [made(0), made(1, body, sys_flag=WHOLE | more_flags), made(2, b"next")]

    assert [row["value"] for row in decoded(run, [Name.VALUE])] == [b"hello", body, b"next"]


def test_the_last_message_of_a_pull_with_batch_flags_is_one_row() -> None:
    last = Pulled(QueueRange(QUEUE, 0, 1), made(0, THREE, sys_flag=WHOLE))
    next_one = Pulled(QueueRange(QUEUE, 1, 2), made(1, b"next"))

    assert rows(Decoder([Name.VALUE]), last, next_one) == [{"value": THREE}, {"value": b"next"}]


@pytest.mark.parametrize("record", [made(0, b"hello"), made(0, b"hello", store_host=V6)])
def test_a_wrong_checksum_is_found_if_checked(record: bytes) -> None:
    damaged = record.replace(b"hello", b"hallo")

    assert decoded([damaged], [Name.VALUE]) == [{"value": b"hallo"}]
    assert decoded([record], [Name.VALUE], check_crc=True) == [{"value": b"hello"}]
    with pytest.raises(ProtocolError, match="checksum"):
        decoded([damaged], [Name.VALUE], check_crc=True)


@given(record_runs(), st.data())
def test_damaged_bytes_are_an_error_or_a_message_and_cause_no_crash(run: list[bytes], data: st.DataObject) -> None:
    buffer = bytearray(b"".join(run))
    for _ in range(data.draw(st.integers(1, 4))):
        buffer[data.draw(st.integers(0, len(buffer) - 1))] = data.draw(st.integers(0, 255))

    for records in (bytes(buffer), memoryview(buffer)):
        try:
            for batch in Decoder(ALL).batches([Pulled(EVERYTHING, records)]):
                batch.validate(full=True)
        except ProtocolError:
            pass


def test_times_equal_those_of_the_record() -> None:
    (row,) = decoded([made(0)], [Name.STORE_TIMESTAMP])

    assert row["storeTimestamp"].timestamp() == STORE_MS / 1000
