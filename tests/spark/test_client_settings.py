"""Options of a connection become settings of a client. Secrets are resolved here, and errors name where a secret was searched."""

from pathlib import Path
from ssl import CERT_NONE, CERT_REQUIRED, SSLContext

import pytest

from pocketmq.client import Credentials
from pocketmq.errors import InvalidSetting
from pocketmq.files import DiskFiles
from pocketmq.spark.options.read_options import parse_read_options
from pocketmq.spark.options.write_options import parse_write_options
from pocketmq.spark.shared_clients import producer_options, reading_settings

ADDRESS = {"rocketmq.namesrv.addr": "ns1:9876;ns2:9876"}


def read_with(given: dict[str, str], environ: dict[str, str] | None = None) -> object:
    options = {**ADDRESS, "subscribe": "orders", **{f"rocketmq.{name}": text for name, text in given.items()}}
    connection = parse_read_options(options, streaming=False, environ={}).connection
    return reading_settings(connection, environ or {}, DiskFiles())


def test_every_option_reaches_the_client_that_reads() -> None:
    given = {
        "namespace": "team-a",
        "clientIp": "10.0.0.7",
        "instanceName": "spark",
        "callTimeoutMs": "5000",
        "connectTimeoutMs": "6000",
    }

    settings = read_with(given)

    wanted = {
        "name_servers": "ns1:9876;ns2:9876",
        "namespace": "team-a",
        "credentials": None,
        "tls": False,
        "client_ip": "10.0.0.7",
        "instance_name": "spark",
        "call_timeout_ms": 5000,
        "connect_timeout_ms": 6000,
    }
    assert {name: getattr(settings, name) for name in wanted} == wanted


def test_every_option_reaches_the_producer() -> None:
    given = {**ADDRESS, "rocketmq.namespace": "team-a", "topic": "orders", "groupId": "etl", "sendTimeoutMs": "9000"}

    made = producer_options(parse_write_options(given, streaming=False, environ={}), {}, DiskFiles())

    assert (made["namespace"], made["group"], made["send_timeout_ms"], made["retries"]) == ("team-a", "etl", 9000, 0)


def test_keys_are_read_from_the_environment_or_a_file_of_this_process(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n", "utf-8")
    token = tmp_path / "token"
    token.write_text("t0ken", "utf-8")

    given = {"accessKeyEnv": "KEY", "secretKeyFile": str(secret), "securityTokenFile": str(token)}
    settings = read_with(given, {"KEY": "me"})

    assert getattr(settings, "credentials", None) == Credentials("me", "s3cret", "t0ken")


def test_a_missing_secret_is_reported_by_its_location(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidSetting, match=r"rocketmq.accessKeyEnv: the environment variable KEY is empty or missing"
    ):
        read_with({"accessKeyEnv": "KEY", "secretKeyEnv": "SECRET"})
    with pytest.raises(InvalidSetting, match=r"rocketmq.secretKeyFile: cannot read the file .*nothing"):
        read_with({"accessKeyEnv": "KEY", "secretKeyFile": str(tmp_path / "nothing")}, {"KEY": "me"})


@pytest.mark.parametrize(("verify", "mode"), [("true", CERT_REQUIRED), ("false", CERT_NONE)])
def test_tls_verifies_unless_switched_off(verify: str, mode: int) -> None:
    settings = read_with({"tls.enable": "true", "tls.verify": verify})

    context = getattr(settings, "tls", None)
    assert isinstance(context, SSLContext)
    assert context.verify_mode == mode
