"""The metrics that a busy broker serves to Prometheus over HTTP."""

import base64
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.broker.metrics.asked import page_of
from tests.net.certificates import make_authority, make_certificate

from pocketmq import Admin, Message, Producer, PullConsumer, Server
from pocketmq.client import client_context
from pocketmq.errors import InvalidSetting
from pocketmq.net.tls import ServerTlsFiles


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
        assert found, f"{name} {labels} is missing"
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


def test_messages_waiting_for_a_deleted_topic_are_counted(server: Server) -> None:
    with Producer(server.name_server, group="shop") as producer, Admin(server.name_server) as admin:
        admin.topics.create("metrics-deleted")
        producer.send(Message("metrics-deleted", b"later", delay_level=1))
        admin.topics.delete("metrics-deleted")

    deadline = monotonic() + 10
    while not Told(server).value("rocketmq_undeliverable_messages_total", kind="delayed"):
        assert monotonic() < deadline, "it is missing"

    assert Told(server).value("rocketmq_undeliverable_messages_total", kind="timed") == 0


def test_every_histogram_and_the_metrics_of_the_store_are_exposed(server: Server) -> None:
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


def test_the_page_also_has_the_metrics_of_the_name_server(server: Server) -> None:
    told = Told(server)

    assert told.value("rocketmq_nameserver_brokers", cluster="DefaultCluster") == 1
    assert told.value("rocketmq_nameserver_connections") >= 1
    assert len([sample for sample in told.samples if sample.name == "process_cpu_seconds_total"]) == 1


def test_without_a_port_no_page_exists() -> None:
    with Server() as server:
        assert server.metrics_address is None


def test_a_page_on_all_addresses_needs_an_explicit_option() -> None:
    with pytest.raises(InvalidSetting, match="names of all topics"):
        Server(settings={"metricsExporterType": "PROM", "metricsPromExporterHost": "0.0.0.0"})


def test_other_exporters_than_prometheus_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="PROM or DISABLE"):
        Server(settings={"metricsExporterType": "OTLP_GRPC"})


ACCOUNTS = """
[[account]]
access_key = "operator"
secret = "the secret of operator"
admin = true

[[account]]
access_key = "prometheus"
secret = "the secret of prometheus"
clusters = { "*" = ["Get"] }

[[account]]
access_key = "shop"
secret = "the secret of shop"
topics = { "*" = ["Pub"] }
"""


def accounts_file(folder: Path) -> Path:
    path = folder / "accounts.toml"
    path.write_text(ACCOUNTS)
    path.chmod(0o600)
    return path


def asked(url: str, key: str = "", context: ssl.SSLContext | None = None) -> tuple[int, str]:
    """The status and the text."""
    request = urllib.request.Request(url)
    if key:
        token = base64.b64encode(f"{key}:the secret of {key}".encode()).decode()
        request.add_header("Authorization", f"Basic {token}")
    try:
        with urllib.request.urlopen(request, timeout=20, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def page_at(server: Server, scheme: str = "http") -> str:
    """By loopback, also where the page listens on all addresses."""
    assert server.metrics_address is not None
    return f"{scheme}://127.0.0.1:{server.metrics_address.rpartition(':')[2]}/metrics"


def test_metrics_stay_on_loopback_on_any_address_of_the_server(tmp_path: Path) -> None:
    with Server(host="0.0.0.0", accounts=accounts_file(tmp_path), metrics_port=0) as server:
        assert server.broker_settings.metrics.address.is_loopback
        assert asked(page_at(server))[0] == 200


def test_on_other_addresses_metrics_need_an_account_with_permission(tmp_path: Path) -> None:
    accounts = accounts_file(tmp_path)
    with Server(accounts=accounts, metrics_port=0, metrics_host="0.0.0.0") as server:
        url = page_at(server)

        status, text = asked(url)
        assert status == 401
        assert "rocketmq" not in text
        assert asked(url, "shop")[0] == 401
        assert asked(url, "nobody")[0] == 401
        status, text = asked(url, "prometheus")
        assert status == 200
        assert "rocketmq_topic_number" in text
        assert "rocketmq_denied_requests_total" in text


def test_with_a_certificate_the_metrics_page_uses_tls(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    shown = make_certificate(tmp_path, authority)
    tls = ServerTlsFiles(cert=shown.cert, key=shown.key)
    with Server(tls=tls, accounts=accounts_file(tmp_path), metrics_port=0, metrics_host="0.0.0.0") as server:
        context = client_context(authority.cert)

        assert asked(page_at(server, "https"), "operator", context)[0] == 200
        with pytest.raises(OSError, match=r"Remote|reset|closed"):
            asked(page_at(server), "operator")


def test_metrics_without_authentication_need_an_explicit_option(tmp_path: Path) -> None:
    settings = {"metricsWithoutAuthentication": "true"}
    with Server(accounts=accounts_file(tmp_path), settings=settings, metrics_port=0, metrics_host="0.0.0.0") as server:
        assert asked(page_at(server))[0] == 200
