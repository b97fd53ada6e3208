"""Properties by the compiled twin mean what they mean one by one, and what is odd is told."""

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
    """`before` stands before each row, as the rest of its record does."""
    ends = np.cumsum([len(before) + len(text) for text in rows], dtype=np.int64)
    starts = ends - np.array([len(text) for text in rows], np.int64)
    buffer = b"".join(before + text for text in rows)
    return CompiledProperties(compiled_or_skip(), buffer, starts, ends, with_map=with_map)


@given(st.lists(property_texts, max_size=12), st.sampled_from([b"", b"\x01", b"a record of some length"]))
def test_names_and_values_are_those_of_the_parser(rows: list[bytes], before: bytes) -> None:
    odd = read(rows, before=before).odd_rows()
    plain = rows if odd is None else [text for text, is_odd in zip(rows, odd.tolist(), strict=True) if not is_odd]

    found = read(plain, before=before)

    assert found.odd_rows() is None
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
def test_only_rows_out_of_shape_are_odd(rows: list[bytes]) -> None:
    odd = read(rows).odd_rows()

    named = [False] * len(rows) if odd is None else odd.tolist()
    for text, is_odd in zip(rows, named, strict=True):
        try:
            text.decode()
        except UnicodeDecodeError:
            assert is_odd
        else:
            assert is_odd is not is_plain(text)


def test_more_entries_than_anybody_gives_are_left_to_others() -> None:
    most = b"".join(b"n%d\x01v\x02" % number for number in range(MOST_ENTRIES))

    assert read([most]).odd_rows() is None
    odd = read([b"", most + b"one\x01more\x02"]).odd_rows()
    assert odd is not None
    assert odd.tolist() == [False, True]


def test_the_map_is_made_only_for_who_wants_it() -> None:
    found = read([b"TAGS\x01t\x02own\x011\x02", b"KEYS\x01k"], with_map=False)

    assert found.values("TAGS").to_pylist() == ["t", None]
    assert found.values("KEYS").to_pylist() == [None, "k"]


@pytest.mark.parametrize(
    ("starts", "ends"), [([0, 2], [3, 4]), ([2], [1]), ([0], [99]), ([-1], [2]), ([0, 1], [1]), ([2**62], [2**62])]
)
def test_places_that_are_not_in_the_buffer_are_refused(starts: list[int], ends: list[int]) -> None:
    with pytest.raises(ValueError, match="rows are pairs of places that rise"):
        CompiledProperties(
            compiled_or_skip(), b"a\x01b\x02", np.array(starts, np.int64), np.array(ends, np.int64), with_map=True
        )
