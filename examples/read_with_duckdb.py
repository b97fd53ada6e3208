"""Query a topic with SQL in DuckDB; needs `pip install duckdb pyarrow numpy`.

Prints:
    ('Oslo', 2, 30.5)
    ('Rome', 1, 12.0)
"""

import json

import duckdb

import pocketmq

ORDERS = [("Oslo", 20.5), ("Rome", 12.0), ("Oslo", 10.0), ("Bonn", 99.0)]

with pocketmq.Server() as server, pocketmq.Producer(server.name_server) as producer:
    for city, amount in ORDERS:
        body = json.dumps({"amount": amount}).encode()
        producer.send(pocketmq.Message("Orders", body, properties={"city": city}))

    orders = pocketmq.read_arrow(
        "Orders",
        columns=["value", "properties"],
        where="properties['city'] IN ('Oslo', 'Rome')",
        options={"rocketmq.namesrv.addr": server.name_server},
    )
    # DuckDB finds the Python variable `orders`, and reads it batch by batch. A reader can be read once.
    rows = (
        duckdb.connect()
        .execute("""
        SELECT properties['city'] AS city, count(*), sum(CAST(decode(value)::JSON ->> 'amount' AS DOUBLE))
        FROM orders GROUP BY city ORDER BY city
    """)
        .fetchall()
    )

for row in rows:
    print(row)
