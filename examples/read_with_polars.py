"""Read a topic into a Polars DataFrame and compute on it; needs `pip install polars pyarrow numpy`.

Prints:
    Oslo 2 30.5
    Rome 1 12.0
"""

import json
from typing import Any

import polars as pl

import pocketmq

ORDERS = [("Oslo", 20.5), ("Rome", 12.0), ("Oslo", 10.0), ("Bonn", 99.0)]

with pocketmq.Server() as server, pocketmq.Producer(server.name_server) as producer:
    for city, amount in ORDERS:
        body = json.dumps({"amount": amount}).encode()
        producer.send(pocketmq.Message("Orders", body, tags=city))

    reader = pocketmq.read_arrow(
        "Orders",
        columns=["tags", "value"],
        where="tags IN ('Oslo', 'Rome')",
        options={"rocketmq.namesrv.addr": server.name_server},
    )
    messages: Any = pl.from_arrow(reader.read_all())

orders = messages.select(
    city=pl.col("tags"),
    amount=pl.col("value").cast(pl.String).str.json_path_match("$.amount").cast(pl.Float64),
)
totals = orders.group_by("city").agg(pl.len(), pl.col("amount").sum()).sort("city")
for city, count, amount in totals.rows():
    print(city, count, amount)
