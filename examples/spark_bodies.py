"""Read typed columns from bodies in JSON, Avro or Protobuf.

python examples/spark_bodies.py              JSON, which Spark knows
python examples/spark_bodies.py avro         downloads Spark's library for Avro
python examples/spark_bodies.py protobuf     downloads Spark's library for Protobuf; needs `pip install protobuf`
python examples/spark_bodies.py avro a.jar   with a library that you have

Needs `pip install 'pocketmq[spark]'` and Java 17 or newer.

Prints:

    orders in json: [(1, 'Oslo', 12.5), (2, 'Bergen', 3.0)], a bad row: [None]
"""

import sys

import pyspark
from pyspark.sql import Column, SparkSession
from pyspark.sql.functions import col, from_json, struct, to_json

from pocketmq import Admin, Server

AVRO = """{"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"}, {"name": "city", "type": "string"}, {"name": "total", "type": "double"}]}"""


def json(order: Column, body: Column) -> tuple[Column, Column]:
    """How to write a body, and how to read it. A body that is no JSON becomes null."""
    return to_json(order).cast("binary"), from_json(body.cast("string"), "id long, city string, total double")


def avro(order: Column, body: Column) -> tuple[Column, Column]:
    """The bodies have no schema of their own: readers and writers agree on one."""
    from pyspark.sql.avro.functions import from_avro, to_avro

    return to_avro(order, AVRO), from_avro(body, AVRO, {"mode": "PERMISSIVE"})


def protobuf(order: Column, body: Column) -> tuple[Column, Column]:
    """The descriptor is what `protoc --descriptor_set_out` writes."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from pyspark.sql.protobuf.functions import from_protobuf, to_protobuf

    files = FileDescriptorSet()
    message = files.file.add(name="orders.proto", syntax="proto3").message_type.add(name="Order")
    kinds = {"id": Field.TYPE_INT64, "city": Field.TYPE_STRING, "total": Field.TYPE_DOUBLE}
    for number, (name, kind) in enumerate(kinds.items(), 1):
        message.field.add(name=name, number=number, type=kind, label=Field.LABEL_OPTIONAL)
    descriptor = files.SerializeToString()
    options = {"mode": "PERMISSIVE"}
    return (
        to_protobuf(order, "Order", binaryDescriptorSet=descriptor),
        from_protobuf(body, "Order", options=options, binaryDescriptorSet=descriptor),
    )


def main(form: str, jar: str | None = None) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    if jar is not None:
        builder = builder.config("spark.jars", jar)
    elif form != "json":
        builder = builder.config("spark.jars.packages", f"org.apache.spark:spark-{form}_2.13:{pyspark.__version__}")
    spark = builder.getOrCreate()
    write, read = {"json": json, "avro": avro, "protobuf": protobuf}[form](struct("id", "city", "total"), col("value"))
    with Server() as server:
        with Admin(server.name_server) as admin:
            admin.topics.create("orders", queues=1)
        address = {"rocketmq.namesrv.addr": server.name_server}
        orders = spark.createDataFrame([(1, "Oslo", 12.5), (2, "Bergen", 3.0)], "id long, city string, total double")
        bad = spark.createDataFrame([(bytearray(b"\xff no order"),)], "value binary")
        for rows in (orders.select(write.alias("value")), bad):
            rows.write.format("rocketmq").options(**address, topic="orders").mode("append").save()

        bodies = spark.read.format("rocketmq").options(**address, subscribe="orders").load()
        found = bodies.select(read.alias("order")).select("order.*").collect()
        good = sorted(tuple(row) for row in found if row.id)
        print(f"orders in {form}: {good}, a bad row: {[row.id for row in found if not row.id]}")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["json"])
