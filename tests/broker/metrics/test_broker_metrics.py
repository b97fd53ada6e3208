"""What a broker tells Prometheus, asked for over HTTP from a server with real work."""

from collections.abc import Iterator
from time import monotonic

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.broker.metrics.asked import page_of

from pocketmq import Admin, Message, Producer, PullConsumer, Server
from pocketmq.errors import InvalidSetting


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(metrics_port=0) as server:
        yield server


class Told:
    """The page as it is now, by name and labels."""

    def __init__(self, server: Server) -> None:
        families = text_string_to_metric_families(page_of(server))
        self.samples = [sample for family in families for sample in family.samples]

    def value(self, name: str, **labels: str) -> float:
        found = [s.value for s in self.samples if s.name == name and labels.items() <= s.labels.items()]
        assert found, f"{name} {labels} is not told"
        return sum(found)


def test_messages_in_and_out_are_counted_by_topic_and_group(server: Server) -> None:
    with Admin(server.name_server) as admin:
        admin.topics.create("metrics-orders", queues=1)
    with Producer(server.name_server, group="shop") as producer:
        for number in range(5):
            producer.send("metrics-orders", f"order {number}".encode())
    with PullConsumer(server.name_server, group="billing") as consumer:
        (queue,) = consumer.queues("metrics-orders")
        pulled = consumer.pull(queue, 0)
        consumer.commit({queue: 3})

    told = Told(server)

    behind = {"topic": "metrics-orders", "consumer_group": "billing"}
    assert len(pulled.messages) == 5
    assert told.value("rocketmq_consumer_lag_messages", **behind) == 2
    assert told.value("rocketmq_consumer_lag_latency", **behind) > 0
    assert told.value("rocketmq_messages_in_total", topic="metrics-orders") == 5
    assert told.value("rocketmq_throughput_in_total", topic="metrics-orders") > 0
    assert told.value("rocketmq_messages_out_total", topic="metrics-orders", consumer_group="billing") == 5
    assert told.value("rocketmq_messages_in_total", cluster="DefaultCluster", node_id="broker-a") >= 5


def test_messages_that_wait_for_a_topic_that_is_deleted_are_counted(server: Server) -> None:
    with Producer(server.name_server, group="shop") as producer, Admin(server.name_server) as admin:
        admin.topics.create("metrics-deleted")
        producer.send(Message("metrics-deleted", b"later", delay_level=1))
        admin.topics.delete("metrics-deleted")

    deadline = monotonic() + 10
    while not Told(server).value("rocketmq_undeliverable_messages_total", kind="delayed"):
        assert monotonic() < deadline, "it is not told"

    assert Told(server).value("rocketmq_undeliverable_messages_total", kind="timed") == 0


def test_every_histogram_and_the_store_are_told(server: Server) -> None:
    with Producer(server.name_server, group="shop") as producer:
        producer.send("metrics-stored", b"x")

    told = Told(server)

    for name in ("append", "pull", "long_poll", "flush"):
        assert told.value(f"rocketmq_{name}_latency_count") >= 0
    assert told.value("rocketmq_append_latency_bucket", le="+Inf") >= 1
    assert told.value("rocketmq_storage_size") > 0
    assert told.value("rocketmq_storage_log_files") >= 1
    assert 0 < told.value("rocketmq_storage_disk_ratio") < 1
    assert told.value("process_resident_memory_bytes") > 1_000_000
    assert told.value("rocketmq_topic_number") > 1


def test_the_name_server_beside_it_tells_on_the_same_page(server: Server) -> None:
    told = Told(server)

    assert told.value("rocketmq_nameserver_brokers", cluster="DefaultCluster") == 1
    assert told.value("rocketmq_nameserver_connections") >= 1
    assert len([sample for sample in told.samples if sample.name == "process_cpu_seconds_total"]) == 1


def test_without_a_port_there_is_no_page() -> None:
    with Server() as server:
        assert server.metrics_address is None


def test_a_page_for_the_whole_network_has_to_be_meant() -> None:
    with pytest.raises(InvalidSetting, match="names of all topics"):
        Server(settings={"metricsExporterType": "PROM", "metricsPromExporterHost": "0.0.0.0"})


def test_another_exporter_than_prometheus_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="PROM or DISABLE"):
        Server(settings={"metricsExporterType": "OTLP_GRPC"})
