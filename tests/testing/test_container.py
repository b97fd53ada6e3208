"""A broker in a container. The engine is a small one that runs the command here; `make image` uses podman and the image."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.testing.docker_engine import DockerEngine

import pocketmq
from pocketmq.testing.container import IMAGE, PocketMQContainer


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DockerEngine:
    monkeypatch.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
    return DockerEngine(tmp_path)


def test_clients_reach_name_server_and_broker(engine: DockerEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    with engine:
        monkeypatch.setenv("DOCKER_HOST", engine.address)
        with (
            PocketMQContainer(options=["--flush=sync"]) as container,
            pocketmq.Producer(container.name_server) as producer,
        ):
            result = producer.send("orders", b"order 1")

    assert result.status is pocketmq.SendStatus.SEND_OK
    assert engine.created["Image"] == IMAGE == f"pocketmq:{pocketmq.__version__}"
    assert engine.created["Cmd"][-1] == "--flush=sync"
    [port] = [option.partition("=")[2] for option in engine.created["Cmd"] if option.startswith("--broker-port=")]
    assert engine.created["HostConfig"]["PortBindings"][f"{port}/tcp"][0]["HostPort"] == port
    assert {f"POCKETMQ_HEALTH_PORT={port}", "POCKETMQ_ADVERTISE=127.0.0.1"} <= set(engine.created["Env"])


def test_without_testcontainers_the_error_names_the_command() -> None:
    code = "import sys; sys.modules['testcontainers'] = None; import pocketmq.testing.container"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)

    assert done.stderr.splitlines()[-1] == (
        "ImportError: pocketmq.testing.container needs testcontainers: pip install 'testcontainers>=4.13'"
    )
