"""Both twins encode the rows of a sink equally: ids, batches, and refusals."""

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.twins import BOTH, compiled_or_skip, using

from pocketmq import compiled
from pocketmq.client.settings import ProducerSettings
from pocketmq.errors import InvalidMessage
from pocketmq.model.message_id import UniqueIds
from pocketmq.model.names import parse_topic
from pocketmq.spark.write.sink_batches import BatchPacker, PlainRows
from pocketmq.spark.write.sink_replays import RowIds
from pocketmq.testing import FakeClock

TEXTS = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=12)
BODIES = st.binary(max_size=400)
LONG_BODIES = st.integers(0, 5000).map(lambda size: bytes(number * 7 % 251 for number in range(size)))


@st.composite
def plain_rows(draw: st.DrawFn) -> PlainRows:
    bodies = draw(st.lists(BODIES, min_size=1, max_size=12))
    count = len(bodies)
    own = draw(st.none() | st.lists(st.dictionaries(TEXTS, TEXTS, max_size=3), min_size=count, max_size=count))
    row_ids = draw(st.none() | st.lists(TEXTS, min_size=count, max_size=count))
    return PlainRows(parse_topic("orders"), bodies, own, row_ids)


def packed(rows: PlainRows, batch_bytes: int, namespace: str | None = None) -> list[bytes]:
    settings = ProducerSettings(name_servers=("any:9876",), group="sink", namespace=namespace)
    ids = UniqueIds(b"\x7f\x00\x00\x01", 1, 2)
    return [out.body for out in BatchPacker(settings, ids, FakeClock(), batch_bytes).packed(rows)]


def by_both(work: Callable[[], Any]) -> list[Any]:
    found = []
    for name in BOTH:
        with using(name):
            found.append(work())
    return found


@given(plain_rows(), st.integers(1, 1500), st.sampled_from([None, "team"]))
def test_batches_are_encoded_as_in_python(rows: PlainRows, batch_bytes: int, namespace: str | None) -> None:
    one, other = by_both(lambda: packed(rows, batch_bytes, namespace))

    assert one == other


@given(st.integers(32_500, 32_900), st.integers(0, 3))
def test_too_long_values_are_refused_with_the_same_words(length: int, at: int) -> None:
    own = [{"own": "x" * length} if number == at else {} for number in range(4)]
    rows = PlainRows(parse_topic("orders"), [b"body"] * 4, own)

    def outcome() -> str | list[bytes]:
        try:
            return packed(rows, 100)
        except InvalidMessage as error:
            return str(error)

    one, other = by_both(outcome)
    assert one == other


@given(st.lists(BODIES | LONG_BODIES, max_size=11), st.binary(max_size=300), st.data())
def test_ids_do_not_depend_on_the_other_rows(bodies: list[bytes], head: bytes, data: st.DataObject) -> None:
    count = len(bodies)
    heads = data.draw(st.just(head) | st.lists(st.binary(max_size=300), min_size=count, max_size=count))

    one, other = by_both(lambda: RowIds("query", 3, 4).next_of(heads, bodies))

    assert one == other


@pytest.mark.parametrize("head_bytes", [0, 1, 127, 128, 129, 256])
def test_digests_equal_blake2b_at_every_length_around_block_ends(head_bytes: int) -> None:
    twin, head = compiled_or_skip(), bytes(range(256))[:head_bytes]
    bodies = [b"\xa5" * size for size in range(520)]

    made = twin.row_ids(b"", head, bodies)

    assert made == [f"{blake2b(head + body, digest_size=10).hexdigest()}-0" for body in bodies]


@pytest.mark.parametrize(
    "call",
    [
        lambda twin: twin.row_ids(b"p", b"head"),
        lambda twin: twin.row_ids("p", b"head", [b"body"]),
        lambda twin: twin.row_ids(b"p", [b"head"], [b"body", b"body"]),
        lambda twin: twin.row_ids(b"p", b"head", (b"body",)),
        lambda twin: twin.row_ids(b"p", "head", [b"body"]),
        lambda twin: twin.row_ids(b"p", b"head", ["body"]),
        lambda twin: twin.pack_rows([b"body"], 0, [1]),
        lambda twin: pack(twin, bodies=["body"]),
        lambda twin: pack(twin, bodies=(b"body",)),
        lambda twin: pack(twin, numbers=[]),
        lambda twin: pack(twin, numbers=["1"]),
        lambda twin: pack(twin, numbers=None),
        lambda twin: pack(twin, own=[b"own"]),
        lambda twin: pack(twin, own=["own", "own"]),
        lambda twin: pack(twin, row_ids=[]),
        lambda twin: pack(twin, row_ids=[1]),
        lambda twin: pack(twin, mark="mark"),
    ],
)
def test_a_value_of_the_wrong_type_is_an_error(call: Callable[[compiled.Twin], object]) -> None:
    with pytest.raises(TypeError):
        call(compiled_or_skip())


@pytest.mark.parametrize("given", [{"at": -1}, {"at": 1}, {"most_properties": 40_000}])
def test_numbers_out_of_range_are_an_error(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="out of range"):
        pack(compiled_or_skip(), **given)


def pack(
    twin: compiled.Twin,
    *,
    bodies: Any = (),
    at: int = 0,
    numbers: Any = (),
    own: Any = None,
    mark: Any = b"mark\x01",
    row_ids: Any = None,
    most_properties: int = 32_767,
) -> object:
    """One row, with some values replaced."""
    bodies, numbers = bodies or [b"body"], [1] if numbers == () else numbers
    return twin.pack_rows(bodies, at, numbers, b"beginning", b"common", own, mark, row_ids, most_properties, 1000)
