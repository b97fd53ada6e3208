"""Trace records: of Java's clients, of older clients, and invalid ones."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden import captured, needs_golden

from pocketmq.codes import RequestCode
from pocketmq.errors import ProtocolError, UsageError
from pocketmq.model.names import TRACE_TOPIC
from pocketmq.model.properties import parse_properties
from pocketmq.protocol.command import Command
from pocketmq.protocol.compression import decompress
from pocketmq.protocol.trace_text import (
    Decision,
    EndTransaction,
    OtherTrace,
    Outcome,
    Pub,
    Recall,
    SubAfter,
    SubBefore,
    Trace,
    TracedType,
    decode_trace,
    encode_trace,
    trace_keys,
)

PUB = Pub(1, "R", "PG", "T", "ID", "TagA", "k1 k2", "10.0.0.1:10911", 6, 26, TracedType.DELAYED, "OID", True)
SUB_BEFORE = SubBefore(1, None, "CG", "REQ", "ID", 2, "k1")
SUB_AFTER = SubAfter("REQ", "ID", 8, False, "k1", Outcome.FAILED, 9, "CG")
END = EndTransaction(1, "R", "PG", "T", "ID", None, "", "h:1", TracedType.COMMITTED, "TX", Decision.COMMIT, True)
RECALL = Recall(1, "R", "PG", "T", "ID", True)

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), max_size=12)
full_texts = texts.filter(bool)
optional_texts = st.none() | texts.filter(lambda text: text != "null")
numbers = st.integers(-(2**63), 2**63 - 1)
types, outcomes, decisions = (st.sampled_from(list(kind)) for kind in (TracedType, Outcome, Decision))
traces: st.SearchStrategy[Trace] = st.one_of(
    st.builds(
        Pub,
        numbers,
        optional_texts,
        texts,
        texts,
        texts,
        optional_texts,
        optional_texts,
        optional_texts,
        numbers,
        numbers,
        types,
        optional_texts,
        st.booleans(),
    ),
    st.builds(
        SubBefore, numbers, optional_texts, texts, texts, texts, numbers, optional_texts.filter(lambda k: k != "")
    ),
    st.builds(SubAfter, texts, texts, numbers, st.booleans(), optional_texts, outcomes, numbers, texts),
    st.builds(
        EndTransaction,
        numbers,
        optional_texts,
        texts,
        texts,
        texts,
        optional_texts,
        optional_texts,
        optional_texts,
        types,
        optional_texts,
        decisions,
        st.booleans(),
    ),
    st.builds(Recall, numbers, optional_texts, texts, texts, texts, st.booleans()),
    st.builds(OtherTrace, full_texts.map("New".__add__), st.lists(texts, max_size=4).map(tuple)),
)


def wire(*fields: str) -> bytes:
    return ("\x01".join(fields) + "\x02").encode()


@pytest.mark.parametrize(
    ("record", "fields"),
    [
        (PUB, "Pub 1 R PG T ID TagA k1␣k2 10.0.0.1:10911 6 26 3 OID true"),
        (SUB_BEFORE, "SubBefore 1 null CG REQ ID 2 k1"),
        (SUB_AFTER, "SubAfter REQ ID 8 false k1 4 9 CG"),
        (END, "EndTransaction 1 R PG T ID null  h:1 2 TX COMMIT_MESSAGE true"),
        (RECALL, "Recall 1 R PG T ID true"),
        (OtherTrace("Later", ("1", "", "x")), "Later 1  x"),
    ],
)
def test_each_kind_has_its_fields_in_the_order_of_the_wire(record: Trace, fields: str) -> None:
    body = wire(*(field.replace("␣", " ") for field in fields.split(" ")))

    assert encode_trace([record]) == body
    assert decode_trace(body) == [record]


@needs_golden
def test_every_captured_trace_survives_decoding_and_encoding() -> None:
    sends = _trace_sends()

    assert len(sends) >= 4
    for ext, send in sends:
        body = decompress(send.body, int(ext["f"]))
        records = decode_trace(body)
        assert encode_trace(records) == body
        assert set(trace_keys(records)) == set(parse_properties(ext["i"])["KEYS"].split())
    assert {type(record) for _, send in sends for record in decode_trace(send.body)} == {Pub, SubBefore, SubAfter}


def _trace_sends() -> list[tuple[dict[str, str], Command]]:
    commands = [frame.command for frame in captured("wire/*/*/trace.jsonl")]
    return [
        (command.ext, command)
        for command in commands
        if command.code == RequestCode.SEND_MESSAGE_V2 and command.ext and command.ext["b"] == TRACE_TOPIC
    ]


@given(st.lists(traces, max_size=4))
def test_any_records_are_preserved(records: list[Trace]) -> None:
    assert decode_trace(encode_trace(records)) == records


@given(
    st.lists(
        st.lists(
            st.sampled_from(
                ["Pub", "SubBefore", "SubAfter", "EndTransaction", "Recall", "1", "-1e9", "true", "null", ""]
            )
            | st.text(max_size=5),
            max_size=16,
        ).map("\x01".join),
        max_size=4,
    )
    .map("\x02".join)
    .map(str.encode)
    | st.binary(max_size=60)
)
def test_arbitrary_bytes_raise_only_a_protocol_error(body: bytes) -> None:
    with suppress(ProtocolError):
        encode_trace(decode_trace(body))


def test_the_last_record_may_lack_its_end_and_empty_ones_do_not_count() -> None:
    assert decode_trace(b"") == []
    assert decode_trace(encode_trace([RECALL, PUB])[:-1]) == [RECALL, PUB]
    assert decode_trace(b"\x02" + encode_trace([RECALL]) + b"\x02") == [RECALL]


def test_a_sent_record_of_a_client_that_knew_no_offset_id_is_read() -> None:
    old = wire(*["Pub", "1", "R", "PG", "T", "ID", "TagA", "k", "h:1", "6", "26", "0", "true"])

    (record,) = decode_trace(old)

    assert isinstance(record, Pub)
    assert (record.offset_id, record.success, record.message_type) == (None, True, TracedType.NORMAL)


def test_a_field_that_a_client_adds_at_the_end_is_ignored() -> None:
    assert decode_trace(encode_trace([PUB])[:-1] + b"\x01127.0.0.1\x02") == [PUB]


@pytest.mark.parametrize("tail", [(), ("0",), ("0", "")])
def test_a_consumed_record_may_lack_outcome_time_and_group(tail: tuple[str, ...]) -> None:
    assert decode_trace(wire("SubAfter", "REQ", "ID", "8", "true", "k", *tail)) == [
        SubAfter("REQ", "ID", 8, True, "k", Outcome.SUCCESS, 0, "")
    ]


@pytest.mark.parametrize("keys", [None, ""])
def test_an_empty_last_field_is_never_written_because_java_would_ignore_it(keys: str | None) -> None:
    body = encode_trace([SubBefore(1, "R", "CG", "REQ", "ID", 0, keys)])

    assert body.endswith(b"\x01null\x02")
    assert decode_trace(wire("SubBefore", "1", "R", "CG", "REQ", "ID", "0", "")) == decode_trace(body)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (wire("Pub"), r"trace record 0 \(Pub\)"),
        (encode_trace([RECALL]) + wire("Recall", "soon", "R", "PG", "T", "ID", "true"), r"trace record 1 \(Recall\)"),
        (wire("Recall", "1", "R", "PG", "T", "ID", "maybe"), "bool"),
        (wire("SubAfter", "REQ", "ID", "8", "true", "k", "77"), "Invalid enum value 77"),
        (encode_trace([END]).replace(b"COMMIT_MESSAGE", b"COMMIT"), "Invalid enum value 'COMMIT'"),
        (b"\xff", "trace text"),
    ],
)
def test_an_unreadable_record_is_named(body: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        decode_trace(body)


@pytest.mark.parametrize("separator", ["\x01", "\x02"])
def test_a_field_that_holds_a_separator_is_refused(separator: str) -> None:
    with pytest.raises(UsageError, match="0x01 or 0x02"):
        encode_trace([Recall(1, "R", "PG", f"T{separator}", "ID", True)])


def test_the_keys_are_those_of_all_messages_each_once() -> None:
    assert trace_keys([PUB, SUB_BEFORE, RECALL, OtherTrace("New", ()), END]) == ["ID", "k1", "k2"]
