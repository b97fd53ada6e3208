"""Read a topic into a pandas DataFrame; needs `pip install pandas pyarrow numpy`.

Prints:
    [(0, 'Oslo', 20.5), (1, 'Rome', 12.0), (2, 'Oslo', 10.0)]
    Oslo 30.5
    Rome 12.0
"""

import json

import pandas as pd

import pocketmq

ORDERS = [("Oslo", 20.5), ("Rome", 12.0), ("Oslo", 10.0), ("Bonn", 99.0)]

with pocketmq.Server() as server, pocketmq.Producer(server.name_server) as producer:
    for city, amount in ORDERS:
        body = json.dumps({"amount": amount}).encode()
        producer.send(pocketmq.Message("Orders", body, tags=city, sharding_key="one queue"))

    reader = pocketmq.read_arrow(
        "Orders",
        columns=["queueOffset", "tags", "value"],
        where="tags IN ('Oslo', 'Rome')",
        options={"rocketmq.namesrv.addr": server.name_server},
    )
    orders: pd.DataFrame = reader.read_pandas()

orders["amount"] = [json.loads(value)["amount"] for value in orders["value"]]
print(list(orders[["queueOffset", "tags", "amount"]].itertuples(index=False, name=None)))
for tag, total in orders.groupby("tags")["amount"].sum().items():
    print(tag, total)
