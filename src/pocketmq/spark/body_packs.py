"""Packs of bodies become batches as they are: their parts are the buffers of an Arrow column.

| head | starts │ bodies | head | starts │ bodies | …
           └────────┴──► a batch, and nothing is copied. Small packs, of brokers that answer with few messages, are copied together.
"""

from collections.abc import Iterator
from typing import Any, Final

from pocketmq.errors import ProtocolError
from pocketmq.protocol.body_pack import Pack, packs_in
from pocketmq.spark.decoding import Pulled
from pocketmq.spark.libraries import np, pa

LARGE_ROWS: Final = 2048
"""From so many rows on, on average, packs are batches of their own."""


def unpacked(pulled: Pulled, schema: Any) -> Iterator[Any]:
    """Record batches of `schema`, which has one column; ProtocolError for bytes that are no packs."""
    buffer = pa.py_buffer(pulled.records)
    columns = [_column(buffer, pack) for pack in packs_in(pulled.records)]
    rows = sum(map(len, columns))
    if rows > len(pulled.wanted):
        raise ProtocolError(f"{pulled.wanted.queue} gave {rows} bodies for {len(pulled.wanted)} messages")
    if rows < len(columns) * LARGE_ROWS:
        columns = [pa.concat_arrays(columns)]
    for column in columns:
        yield pa.RecordBatch.from_arrays([column], schema=schema)


def _column(buffer: Any, pack: Pack) -> Any:
    starts, bodies = buffer[pack.starts : pack.bodies], buffer[pack.bodies : pack.end]
    numbers = np.frombuffer(starts, "<i4")
    # Arrow believes these, and would read elsewhere in memory.
    if numbers[0] or numbers[-1] > bodies.size or (numbers[1:] < numbers[:-1]).any():
        raise ProtocolError("the bodies of a pack do not lie one behind the other")
    return pa.Array.from_buffers(pa.binary(), pack.rows, [None, starts, bodies])
