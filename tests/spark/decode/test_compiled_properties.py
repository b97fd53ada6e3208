"""The C twin reads properties as the parser does, and reports irregular rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from tests.spark.decode.test_property_table import is_plain
from tests.spark.made_records import property_texts
from tests.twins import compiled_or_skip

from pocketmq.model.properties import parse_properties
from pocketmq.spark.arrow import np
from pocketmq.spark.decode.compiled import COLUMNS, CompiledProperties

MOST_ENTRIES = 64


def read(rows: list[bytes], *, before: bytes = b"", with_map: bool = True) -> CompiledProperties:
    """`before` precedes each row, like the rest of its record."""
    ends = np.cumsum([len(before) + len(text) for text in rows], dtype=np.int64)
    starts = ends - np.array([len(text) for text in rows], np.int64)
    buffer = b"".join(before + text for text in rows)
    return CompiledProperties(compiled_or_skip(), buffer, starts, ends, with_map=with_map)


@given(st.lists(property_texts, max_size=12), st.sampled_from([b"", b"\x01", b"a record of some length"]))
def test_names_and_values_equal_those_of_the_parser(rows: list[bytes], before: bytes) -> None:
    irregular = read(rows, before=before).irregular_rows()
    plain = (
        rows
        if irregular is None
        else [text for text, is_irregular in zip(rows, irregular.tolist(), strict=True) if not is_irregular]
    )

    found = read(plain, before=before)

    assert found.irregular_rows() is None
    expected = [parse_properties(text.decode()) for text in plain]
    maps = found.maps()
    maps.validate(full=True)
    assert [dict(row) for row in maps.to_pylist()] == expected
    assert [[name for name, _ in row] for row in maps.to_pylist()] == [list(row) for row in expected]
    for name in COLUMNS:
        values = found.values(name)
        values.validate(full=True)
        assert values.to_pylist() == [row.get(name) for row in expected]


@given(st.lists(property_texts, max_size=8))
def test_only_malformed_rows_are_irregular(rows: list[bytes]) -> None:
    irregular = read(rows).irregular_rows()

    marked = [False] * len(rows) if irregular is None else irregular.tolist()
    for text, is_irregular in zip(rows, marked, strict=True):
        try:
            text.decode()
        except UnicodeDecodeError:
            assert is_irregular
        else:
            assert is_irregular is not is_plain(text)


def test_a_row_with_too_many_entries_is_irregular() -> None:
    most = b"".join(b"n%d\x01v\x02" % number for number in range(MOST_ENTRIES))

    assert read([most]).irregular_rows() is None
    irregular = read([b"", most + b"one\x01more\x02"]).irregular_rows()
    assert irregular is not None
    assert irregular.tolist() == [False, True]


def test_the_map_is_built_only_on_request() -> None:
    found = read([b"TAGS\x01t\x02own\x011\x02", b"KEYS\x01k"], with_map=False)

    assert found.values("TAGS").to_pylist() == ["t", None]
    assert found.values("KEYS").to_pylist() == [None, "k"]


@pytest.mark.parametrize(
    ("starts", "ends"), [([0, 2], [3, 4]), ([2], [1]), ([0], [99]), ([-1], [2]), ([0, 1], [1]), ([2**62], [2**62])]
)
def test_positions_outside_the_buffer_are_refused(starts: list[int], ends: list[int]) -> None:
    with pytest.raises(ValueError, match="rows must be pairs of ascending positions"):
        CompiledProperties(
            compiled_or_skip(), b"a\x01b\x02", np.array(starts, np.int64), np.array(ends, np.int64), with_map=True
        )
