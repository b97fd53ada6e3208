"""Options of clients: known and valid ones, and the errors for others."""

from typing import Any, get_type_hints

import pytest

from pocketmq.client.settings import (
    ClientOptions,
    ClientSettings,
    ProducerOptions,
    ProducerSettings,
    settings_of,
)
from pocketmq.codes import Compression
from pocketmq.errors import InvalidName, InvalidSetting


@pytest.mark.parametrize(
    ("options", "settings"), [(ClientOptions, ClientSettings), (ProducerOptions, ProducerSettings)]
)
def test_the_option_types_match_the_settings(options: Any, settings: type[ClientSettings]) -> None:
    assert {*get_type_hints(options), "name_servers"} == set(settings.__struct_fields__)


def test_options_become_settings() -> None:
    settings = settings_of(ProducerSettings, "a:9876", {"group": "orders", "retries": 0})

    assert (settings.name_servers, settings.group, settings.retries) == ("a:9876", "orders", 0)


def test_a_wrong_name_is_refused_with_the_nearest_right_one() -> None:
    with pytest.raises(InvalidSetting, match="no option 'retry'; did you mean 'retries'"):
        settings_of(ProducerSettings, None, {"retry": 3})
    with pytest.raises(InvalidSetting, match=r"no option 'zzz'; there are: .*group"):
        settings_of(ProducerSettings, None, {"zzz": 3})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"retries": -1}, "retries = -1 must be 0 or above"),
        ({"retries": "3"}, "retries = '3' must be a whole number"),
        ({"retries": True}, "retries = True must be a whole number"),
        ({"retry_when_busy": 1}, "retry_when_busy = 1 must be True or False"),
        ({"send_timeout_ms": 0}, "send_timeout_ms = 0 must be above 0"),
        ({"tls": "yes"}, "tls = 'yes' must be True, False or a context"),
        ({"group": 5}, "group = 5 must be a text"),
        ({"retries": None}, "retries = None must be a whole number, for example retries=2"),
        ({"namespace": 5}, "namespace = 5 must be a text, or None"),
        ({"client_ip": b"10.0.0.1"}, "client_ip = b'10.0.0.1' must be a text, or None"),
        ({"credentials": ("key", "hidden")}, r"credentials = … must be Credentials\(access_key, secret\), or None"),
        (
            {"send_timeout_ms": 10**30},
            "send_timeout_ms = 10+ must be 2147483647 at most, for example send_timeout_ms=3000",
        ),
        ({"linger_ms": 30_001}, "linger_ms = 30001 must be 30000 at most"),
        ({"compression": "gzip"}, "compression = 'gzip' must be one of 'lz4', 'zstd', 'zlib', for example"),
        ({"compression": 3}, "compression = 3 must be one of"),
        ({"compression_level": 10}, "ZLIB has no compression level 10; choose 0 to 9"),
        ({"heartbeat_ms": 61_000}, "heartbeat_ms from 1000 to 60000"),
        ({"route_poll_ms": 999}, "route_poll_ms must be at least 1000"),
        ({"instance_name": "a@b"}, "instance_name 'a@b'"),
        ({"batch_bytes": 5 * 1024 * 1024}, "batch_bytes=5242880 is above max_message_bytes=4194304"),
    ],
)
def test_a_value_that_cannot_work_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        settings_of(ProducerSettings, None, options)


@pytest.mark.parametrize("options", [{"group": ""}, {"group": "a b"}, {"trace_topic": "a b"}, {"template_topic": ""}])
def test_an_invalid_name_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidName):
        settings_of(ProducerSettings, None, options)


def test_limits_themselves_are_allowed() -> None:
    settings_of(ProducerSettings, None, {"heartbeat_ms": 60_000, "route_poll_ms": 1_000, "linger_ms": 0, "retries": 0})


@pytest.mark.parametrize("compression", ["lz4", "LZ4", Compression.LZ4])
def test_a_compression_may_be_named(compression: Compression | str) -> None:
    settings = settings_of(ProducerSettings, None, {"compression": compression})

    assert settings.compression_kind is Compression.LZ4
