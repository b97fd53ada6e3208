"""Address and identity of a connection: secrets are named, never contained."""

import pickle
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client.settings import ClientSettings
from pocketmq.errors import InvalidSetting
from pocketmq.files import DiskFiles
from pocketmq.spark.options.connection_options import (
    CONNECTION_OPTIONS,
    FORBIDDEN,
    MAX_SECRET_BYTES,
    Connection,
    Secret,
    connection_of,
)
from pocketmq.spark.options.options import OptionTable, Use

TABLE = OptionTable(CONNECTION_OPTIONS, FORBIDDEN)
HERE = {"rocketmq.namesrv.addr": "a:9876"}
KEYS = {"rocketmq.accessKeyEnv": "MQ_ACCESS", "rocketmq.secretKeyFile": "/run/secrets/mq"}


def connection(given: dict[str, str], environ: dict[str, str] | None = None) -> Connection:
    return connection_of(TABLE.read(given, Use.BATCH), environ or {})


def test_a_name_server_is_the_only_required_option() -> None:
    assert connection(HERE) == Connection("a:9876")
    assert connection({"NAMESERVER": "a:9876"}) == Connection("a:9876")


def test_the_environment_may_name_the_name_server() -> None:
    assert connection({}, {"NAMESRV_ADDR": "b:1"}).name_servers == "b:1"
    assert connection({}, {"ROCKETMQ_NAMESRV_ADDR": "c:1"}).name_servers == "c:1"
    assert connection(HERE, {"NAMESRV_ADDR": "b:1"}).name_servers == "a:9876"


def test_connection_options_are_removed_from_the_others() -> None:
    values: dict[str, Any] = TABLE.read(HERE, Use.BATCH)
    values["other"] = 1

    connection_of(values, {})

    assert values == {"other": 1}


def test_connection_options_can_be_pickled_and_show_no_secret(tmp_path: Path) -> None:
    made = connection({**HERE, **KEYS})

    assert pickle.loads(pickle.dumps(made)) == made
    assert made.access_key == Secret("rocketmq.accessKeyEnv", "MQ_ACCESS")
    assert made.secret_key == Secret("rocketmq.secretKeyFile", None, "/run/secrets/mq")
    assert made.access_key is not None
    assert made.access_key.read({"MQ_ACCESS": " hunter2\n"}, DiskFiles()) == "hunter2"
    assert "hunter2" not in repr(made)


def test_a_secret_is_read_from_its_file_when_it_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("hunter2\n")

    assert Secret("o", None, str(path)).read({}, DiskFiles()) == "hunter2"


@pytest.mark.parametrize(
    ("secret", "told"),
    [
        (
            Secret("rocketmq.secretKeyEnv", "NOT_SET"),
            "the environment variable NOT_SET is empty or missing on this machine",
        ),
        (Secret("rocketmq.secretKeyFile", None, "missing"), "cannot read"),
        (Secret("rocketmq.secretKeyFile", None, "empty"), "is empty or missing"),
        (Secret("rocketmq.secretKeyFile", None, "binary"), "cannot read"),
    ],
)
def test_a_missing_secret_is_reported_by_its_location(secret: Secret, told: str, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    if secret.path is not None:
        secret = Secret(secret.option, None, str(tmp_path / secret.path))

    with pytest.raises(InvalidSetting) as caught:
        secret.read({}, DiskFiles())

    assert told in str(caught.value)
    assert secret.option in str(caught.value)


def test_a_large_file_is_not_read_completely_as_a_secret(tmp_path: Path) -> None:
    path = tmp_path / "huge"
    path.write_text("x" * (MAX_SECRET_BYTES + 1))

    assert len(Secret("o", None, str(path)).read({}, DiskFiles())) == MAX_SECRET_BYTES


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "no name server is set"),
        ({**HERE, "rocketmq.accessKey": "hunter2"}, "name an environment variable by rocketmq.accessKeyEnv"),
        ({**HERE, "rocketmq.secretkey": "hunter2"}, "or a file by rocketmq.secretKeyFile"),
        ({**HERE, "rocketmq.accessKeyEnv": "A"}, "required together"),
        ({**HERE, "rocketmq.secretKeyEnv": "A"}, "required together"),
        ({**HERE, "rocketmq.securityTokenEnv": "A"}, "needs rocketmq.accessKey…"),
        (
            {**HERE, **KEYS, "rocketmq.accessKeyFile": "/x"},
            "rocketmq.accessKeyEnv and rocketmq.accessKeyFile exclude one another",
        ),
        ({**HERE, "rocketmq.tls.caFile": "/x"}, "rocketmq.tls.enable is not true"),
        ({**HERE, "rocketmq.tls.verify": "false"}, "rocketmq.tls.enable is not true"),
        ({**HERE, "rocketmq.tls.enable": "true", "rocketmq.tls.keyFile": "/x"}, "needs rocketmq.tls.certFile"),
        ({**HERE, "path": "orders"}, "a topic has no path"),
        ({**HERE, "rocketmq.callTimeoutMs": "0"}, "at least 1"),
    ],
)
def test_an_impossible_value_is_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        connection(given)

    assert told in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_every_field_that_is_not_a_secret_or_tls_is_an_option_of_the_client() -> None:
    ours = {
        field
        for field in Connection.__struct_fields__
        if not field.startswith(("tls_", "access", "secret", "security"))
    }

    assert ours <= set(ClientSettings.__struct_fields__)
