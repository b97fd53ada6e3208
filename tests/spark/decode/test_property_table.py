"""Properties parsed by columns equal properties parsed one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from tests.spark.made_records import property_texts

from pocketmq.model.properties import parse_properties
from pocketmq.spark.arrow import np
from pocketmq.spark.decode.property_table import PropertyTable, PropertyTexts


def texts_of(rows: list[bytes]) -> PropertyTexts:
    offsets = np.cumsum([0, *map(len, rows)])
    return PropertyTexts(np.frombuffer(b"".join(rows), np.uint8), offsets)


def is_plain(text: bytes) -> bool:
    entries = text.removesuffix(b"\x02").split(b"\x02") if text else []
    return all(entry.count(b"\x01") == 1 for entry in entries)


@given(st.lists(property_texts, max_size=8))
def test_malformed_rows_are_irregular_and_plain_rows_are_not(rows: list[bytes]) -> None:
    irregular = texts_of(rows).irregular_rows()

    marked = [False] * len(rows) if irregular is None else irregular.tolist()
    for text, is_irregular in zip(rows, marked, strict=True):
        if not is_plain(text):
            assert is_irregular
        elif text.isascii():
            assert not is_irregular
        if not is_irregular:
            text.decode()


@given(st.lists(property_texts, max_size=8))
def test_property_names_and_values_equal_those_of_the_parser(rows: list[bytes]) -> None:
    irregular = texts_of(rows).irregular_rows()
    plain = (
        rows
        if irregular is None
        else [text for text, is_irregular in zip(rows, irregular.tolist(), strict=True) if not is_irregular]
    )

    table = PropertyTable(texts_of(plain))

    parsed = [parse_properties(text.decode()) for text in plain]
    assert table.maps().to_pylist() == [list(row.items()) for row in parsed]
    for name in ("TAGS", "KEYS", "UNIQ_KEY", "größe", "never there"):
        assert table.values(name).to_pylist() == [row.get(name) for row in parsed]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"", {}),
        (b"A\x011\x02", {"A": "1"}),
        (b"A\x011", {"A": "1"}),
        (b"A\x011\x02B\x012", {"A": "1", "B": "2"}),
        (b"A\x01\x02B\x012\x02", {"B": "2"}),
        (b"\x011\x02B\x012\x02", {"B": "2"}),
        (b"A\x01\x02", {}),
        (b"A\x01", {}),
        (b"A\x011\x02B\x012\x02A\x013\x02", {"A": "3", "B": "2"}),
        (b"A\x011\x02A\x01\x02", {"A": "1"}),
        ("ü\x01ö\x02".encode(), {"ü": "ö"}),
    ],
)
def test_texts_that_brokers_write_are_regular(text: bytes, found: dict[str, str]) -> None:
    rows = [b"X\x010\x02", text, b"Y\x019"]
    assert texts_of(rows).irregular_rows() is None

    table = PropertyTable(texts_of(rows))

    assert [dict(row) for row in table.maps().to_pylist()] == [{"X": "0"}, found, {"Y": "9"}]
    assert table.values("A").to_pylist() == [None, found.get("A"), None]


@pytest.mark.parametrize("text", [b"A\x02", b"\x02", b"A", b"A\x011\x012\x02", b"A\x011\x02\x02", b"A\x01\xff\x02"])
def test_a_malformed_row_does_not_affect_other_rows(text: bytes) -> None:
    irregular = texts_of([b"X\x010\x02", text, b"Y\x019", b"Z\x018\x02"]).irregular_rows()

    assert irregular is not None
    assert irregular.tolist() == [False, True, False, False]


def test_a_utf8_character_split_at_the_end_of_a_row_is_found() -> None:
    letter = "ü".encode()

    irregular = texts_of([b"A\x01" + letter[:1], letter[1:] + b"\x011\x02", b"B\x012\x02"]).irregular_rows()

    assert irregular is not None
    assert irregular.tolist() == [True, True, False]


def test_rows_without_properties_have_an_empty_map() -> None:
    table = PropertyTable(texts_of([b"", b""]))

    assert table.maps().to_pylist() == [[], []]
    assert table.values("TAGS").to_pylist() == [None, None]


def test_names_of_a_row_may_be_all_different_and_repeat_in_others() -> None:
    rows = [b"n%d\x011\x02n%d\x012\x02" % (number, number) for number in range(100)]

    table = PropertyTable(texts_of(rows))

    assert table.maps().to_pylist() == [[(f"n{number}", "2")] for number in range(100)]
