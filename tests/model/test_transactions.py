"""Which transactions are undecided, from the messages of the two topics."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.model.test_message import stored

from pocketmq.model.message import StoredMessage
from pocketmq.model.transactions import (
    OP_TAG,
    Undecided,
    checks_of,
    describe,
    format_op,
    origin_of,
    parse_op,
    undecided,
)


def half(offset: int, properties: str = "") -> StoredMessage:
    return stored(f"UNIQ_KEY\x01K{offset}\x02{properties}", queue_offset=offset, log_offset=offset * 100)


def op(*offsets: int, tag: str = OP_TAG) -> StoredMessage:
    return stored(f"TAGS\x01{tag}\x02", body=format_op(offsets))


def test_an_op_message_is_a_list_with_a_comma_after_each_offset() -> None:
    assert format_op([0, 1, 25]) == b"0,1,25,"
    assert format_op([]) == b""


@given(st.lists(st.integers(0, 2**63 - 1)))
def test_a_written_op_message_is_read_unchanged(offsets: list[int]) -> None:
    assert parse_op(format_op(offsets)) == offsets


@pytest.mark.parametrize(
    ("body", "offsets"),
    [
        (b"7", [7]),
        (b"0,1,", [0, 1]),
        (b"", []),
        (b",,", []),
        (b"1,x,-3,2", [1, 2]),
        (b"\xff,4", [4]),
        (b"9" * 20, []),
    ],
)
def test_any_op_message_can_be_read(body: bytes, offsets: list[int]) -> None:
    assert parse_op(body) == offsets


def test_offsets_without_an_op_message_are_undecided() -> None:
    found = undecided([half(0), half(1), half(2), half(3)], [op(1), op(3, 0)])

    assert [one.half_offset for one in found] == [2]


def test_a_message_with_another_tag_closes_no_transaction() -> None:
    assert [one.half_offset for one in undecided([half(0)], [op(0, tag="x")])] == [0]


def test_an_administrator_sees_the_group_of_a_transaction() -> None:
    message = half(5, "REAL_TOPIC\x01Orders\x02PGROUP\x01PG\x02TRANSACTION_CHECK_TIMES\x013\x02")

    assert describe(message) == Undecided(
        transaction_id="K5",
        topic="Orders",
        producer_group="PG",
        born_ms=message.born_ms,
        checks=3,
        half_offset=5,
        log_offset=500,
    )


@pytest.mark.parametrize(("text", "checks"), [("0", 0), ("15", 15), ("-1", 0), ("many", 0), ("9" * 30, 0)])
def test_an_invalid_count_of_checks_counts_as_zero(text: str, checks: int) -> None:
    assert checks_of(half(0, f"TRANSACTION_CHECK_TIMES\x01{text}\x02")) == checks


def test_a_copy_knows_the_first_offset_of_its_transaction() -> None:
    assert origin_of(half(8)) == 8
    assert origin_of(half(8, "TRAN_PREPARED_QUEUE_OFFSET\x012\x02")) == 2
    assert origin_of(half(8, "TRAN_PREPARED_QUEUE_OFFSET\x01-1\x02")) == 8
