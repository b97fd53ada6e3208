"""Write a DataFrame to a topic and read it again, as a batch and as a stream with a checkpoint.

Needs `pip install '.[spark]'` in a checkout and Java 17 or newer.

Prints:

    written and read: 3 orders, 60 in all
    streamed to invoices: ['order 1', 'order 2', 'order 3']
"""

from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from pocketmq import Admin, Server

with Server() as server, TemporaryDirectory() as checkpoint:
    with Admin(server.name_server) as admin:
        admin.topics.create("orders", queues=2)
        admin.topics.create("invoices", queues=2)

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    address = {"rocketmq.namesrv.addr": server.name_server}

    rows = spark.createDataFrame([("10", "order 1"), ("20", "order 2"), ("30", "order 3")], "value string, keys string")
    rows.write.format("rocketmq").options(**address, topic="orders").mode("append").save()

    orders = spark.read.format("rocketmq").options(**address, subscribe="orders").schema("value binary").load()
    found = orders.selectExpr("count(*) AS many", "sum(CAST(CAST(value AS string) AS int)) AS total").collect()[0]
    print(f"written and read: {found.many} orders, {found.total} in all")

    query = (
        spark.readStream.format("rocketmq")
        .options(**address, subscribe="orders", startingOffsets="earliest", groupId="invoicing")
        .load()
        .selectExpr("value", "keys")
        .writeStream.format("rocketmq")
        .options(**address, topic="invoices", checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    invoices = spark.read.format("rocketmq").options(**address, subscribe="invoices").schema("keys string").load()
    print("streamed to invoices:", sorted(row["keys"] for row in invoices.collect()))
