"""Regular rows by columns: each alone, and chosen ones."""

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from tests.spark.made_records import made, row_of
from tests.twins import twin  # noqa: F401

from pocketmq import compiled
from pocketmq.protocol.record import decode_records
from pocketmq.spark.arrow import np
from pocketmq.spark.decode.decoding import RegularRows
from pocketmq.spark.decode.records import Records, regular_layout
from pocketmq.spark.schema import Name

RUN = b"".join(made(n, b"%d" % n, b"TAGS\x01t%d\x02own\x01%d\x02" % (n % 2, n)) for n in range(6))
COLUMNS = [name for name in Name if name is not Name.BROKER_NAME]


pytestmark = pytest.mark.usefixtures("twin")


def of(run: bytes, *columns: Name) -> RegularRows:
    records = Records.find(run, compiled.twin())
    return RegularRows(records, regular_layout(records, 0)[1], frozenset(columns or Name), compiled.twin())


def rows() -> RegularRows:
    return of(RUN)


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_have_the_values_of_the_messages(name: Name) -> None:
    assert rows().column(name).to_pylist() == [row_of(message)[name] for message in decode_records(RUN)]


@pytest.mark.parametrize("name", COLUMNS)
def test_chosen_rows_have_the_same_columns(name: Name) -> None:
    expected = [row_of(message)[name] for message in decode_records(RUN)]

    assert rows().chosen(slice(2, 4)).column(name).to_pylist() == expected[2:4]
    assert rows().chosen(np.array([True, False] * 3)).column(name).to_pylist() == expected[::2]
    assert rows().chosen(slice(0, 0)).column(name).to_pylist() == []


def test_texts_make_rows_irregular_only_in_requested_columns() -> None:
    run = made(0, topic="größe") + made(1, properties=b"out of shape")

    def irregular(*columns: Name) -> list[bool] | None:
        mask = of(run, *columns).irregular_rows()
        return None if mask is None else mask.tolist()

    assert irregular(Name.VALUE) is None
    assert irregular(Name.TOPIC) == [True, False]
    assert irregular(Name.TAGS) == [False, True]
    assert irregular(Name.TOPIC, Name.TAGS) == [True, True]
