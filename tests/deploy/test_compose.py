"""deploy/compose and deploy/Containerfile: files and services exist, options are known, and nothing is open to the network."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from release.image import ENVIRONMENT, HEALTH, KINDS, USER, image_name
from tests.deploy.options import unknown_options

FOLDER = Path(__file__).parents[2] / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose" / "compose.yaml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
CONTAINERFILE = (FOLDER / "Containerfile").read_text("utf-8")
OURS = [name for name, service in SERVICES.items() if service["image"] == image_name(KINDS["broker"])]


def test_the_services_are_there() -> None:
    expected = {"broker", "console", "console-user", "prometheus", "grafana", "spark-master", "spark-worker"}
    assert set(SERVICES) == expected
    assert {service["image"] for service in SERVICES.values() if service["image"].startswith("pocketmq")} == {
        image_name(kind) for kind in KINDS.values()
    }


@pytest.mark.parametrize("name", OURS)
def test_the_options_of_our_services_exist(name: str) -> None:
    assert unknown_options(SERVICES[name]["command"]) == set()


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_published_on_loopback_only(name: str) -> None:
    assert [port for port in SERVICES[name].get("ports", []) if not port.startswith("127.0.0.1:")] == []


@pytest.mark.parametrize("name", SERVICES)
def test_mounted_files_and_volumes_exist_and_services_wait_for_services(name: str) -> None:
    for volume in SERVICES[name].get("volumes", []):
        source = volume.split(":")[0]
        assert source in COMPOSE["volumes"] or (FOLDER / "compose" / source).exists()
    assert set(SERVICES[name].get("depends_on", [])) <= set(SERVICES)


def test_prometheus_asks_the_port_that_the_broker_opens() -> None:
    scraped = yaml.safe_load((FOLDER / "compose" / "prometheus.yml").read_text("utf-8"))
    [target] = scraped["scrape_configs"][0]["static_configs"][0]["targets"]
    name, _, port = target.partition(":")

    assert f"--metrics-port={port}" in SERVICES[name]["command"]


def test_grafana_finds_prometheus_and_the_dashboard() -> None:
    source = yaml.safe_load((FOLDER / "compose" / "grafana" / "datasource.yaml").read_text("utf-8"))
    boards = yaml.safe_load((FOLDER / "compose" / "grafana" / "dashboards.yaml").read_text("utf-8"))

    assert source["datasources"][0]["url"] == "http://prometheus:9090"
    assert f"../grafana:{boards['providers'][0]['options']['path']}:ro" in SERVICES["grafana"]["volumes"]


def test_the_containerfile_has_the_settings_of_the_image() -> None:
    variables = dict(re.findall(r"(\w+)=(\S+)", CONTAINERFILE.split("ENV PATH", 1)[1].split("USER", 1)[0]))

    assert {name: variables.get(name) for name in ENVIRONMENT if name != "PATH"} == {
        name: text for name, text in ENVIRONMENT.items() if name != "PATH"
    }
    assert f"USER {USER}:{USER}" in CONTAINERFILE
    assert json.dumps(HEALTH) in CONTAINERFILE
    for kind in KINDS.values():
        assert f"pocketmq[{kind.extras}]" in CONTAINERFILE
