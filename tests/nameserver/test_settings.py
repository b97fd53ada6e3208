"""Settings of a name server: impossible values are refused before anything starts."""

from typing import Any

import pytest

from pocketmq.errors import InvalidSetting
from pocketmq.nameserver.settings import NameServerSettings


def test_the_defaults_are_those_of_rocketmq_on_loopback() -> None:
    settings = NameServerSettings()

    assert str(settings.address) == "127.0.0.1:9876"
    assert (settings.broker_timeout_ms, settings.scan_interval_ms, settings.idle_s) == (120_000, 5_000, 120)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_on_loopback_no_option_is_needed(host: str) -> None:
    assert NameServerSettings(host=host).address.is_loopback


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.1", "fe80::1", "my-host"])
def test_on_addresses_that_others_reach_the_option_is_needed(host: str) -> None:
    with pytest.raises(InvalidSetting, match="--open-to-the-network-without-authentication"):
        NameServerSettings(host=host)

    NameServerSettings(host=host, open_to_the_network_without_authentication=True)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"port": -1}, "port = -1 must be 0 or above"),
        ({"port": 65_536}, "port 65536"),
        ({"scan_interval_ms": 0}, "scan_interval_ms = 0"),
        ({"max_kv_entries": -5}, "max_kv_entries = -5"),
        ({"drain_s": 0.0}, r"drain_s = 0\.0"),
    ],
)
def test_an_impossible_value_is_named(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidSetting, match=why):
        NameServerSettings(**wrong)
