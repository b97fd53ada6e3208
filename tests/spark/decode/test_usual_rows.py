"""Usual rows by columns: each alone, and chosen ones."""

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from tests.spark.made_records import made, row_of
from tests.twins import twin  # noqa: F401

from pocketmq import compiled
from pocketmq.protocol.record import decode_records
from pocketmq.spark.arrow import np
from pocketmq.spark.decode.decoding import UsualRows
from pocketmq.spark.decode.records import Records, usual_layout
from pocketmq.spark.schema import Name

RUN = b"".join(made(n, b"%d" % n, b"TAGS\x01t%d\x02own\x01%d\x02" % (n % 2, n)) for n in range(6))
COLUMNS = [name for name in Name if name is not Name.BROKER_NAME]


pytestmark = pytest.mark.usefixtures("twin")


def of(run: bytes, *columns: Name) -> UsualRows:
    records = Records.find(run, compiled.twin())
    return UsualRows(records, usual_layout(records, 0)[1], frozenset(columns or Name), compiled.twin())


def rows() -> UsualRows:
    return of(RUN)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_is_what_the_messages_say(name: Name) -> None:
    assert rows().column(name).to_pylist() == [row_of(message)[name] for message in decode_records(RUN)]


@pytest.mark.parametrize("name", COLUMNS)
def test_chosen_rows_have_the_same_columns(name: Name) -> None:
    expected = [row_of(message)[name] for message in decode_records(RUN)]

    assert rows().chosen(slice(2, 4)).column(name).to_pylist() == expected[2:4]
    assert rows().chosen(np.array([True, False] * 3)).column(name).to_pylist() == expected[::2]
    assert rows().chosen(slice(0, 0)).column(name).to_pylist() == []


def test_texts_make_rows_odd_only_where_they_are_asked_for() -> None:
    run = made(0, topic="größe") + made(1, properties=b"out of shape")

    def odd(*columns: Name) -> list[bool] | None:
        mask = of(run, *columns).odd_rows()
        return None if mask is None else mask.tolist()

    assert odd(Name.VALUE) is None
    assert odd(Name.TOPIC) == [True, False]
    assert odd(Name.TAGS) == [False, True]
    assert odd(Name.TOPIC, Name.TAGS) == [True, True]
