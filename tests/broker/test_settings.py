"""What a broker cannot be set to."""

from typing import Any

import pytest
from msgspec.structs import replace

from pocketmq.broker.settings import BrokerSettings, FlowSettings, TimerSettings, TransactionSettings
from pocketmq.errors import InvalidName, InvalidSetting


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"port": 70_000}, "invalid port 70000"),
        ({"max_connections": 0}, "broker setting max_connections = 0 must be above 0"),
        ({"save_interval_ms": -1}, "broker setting save_interval_ms = -1 must be above 0"),
        ({"permission": 9}, "permission 9 is invalid"),
        ({"register_interval_ms": 5_000}, "register_interval_ms must be from 10000 to 60000"),
        ({"host": "0.0.0.0"}, "every client may read, send and administrate"),
    ],
)
def test_an_impossible_setting_is_refused_with_its_name(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidSetting, match=says):
        BrokerSettings(**wrong)


@pytest.mark.parametrize(
    "wrong", [{"cluster": "a b"}, {"broker_name": ""}, {"broker_name": "../up"}, {"broker_name": "@a"}]
)
def test_cluster_and_broker_names_follow_the_rules_of_topics(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidName):
        BrokerSettings(**wrong)


@pytest.mark.parametrize(
    ("kind", "name"),
    [(FlowSettings, "send_wait_ms"), (TransactionSettings, "max_checks"), (TimerSettings, "precision_ms")],
)
def test_limits_must_be_above_zero(kind: Any, name: str) -> None:
    with pytest.raises(InvalidSetting, match=f"{name} = 0 must be above 0"):
        kind(**{name: 0})


@pytest.mark.parametrize(("name", "most"), [("precision_ms", 60_000), ("max_delay_s", 3_153_600_000)])
def test_timed_messages_beyond_the_longest_delay_are_refused(name: str, most: int) -> None:
    with pytest.raises(InvalidSetting, match=f"{name} = {most + 1} must be at most {most}"):
        replace(TimerSettings(), **{name: most + 1})

    assert getattr(replace(TimerSettings(), **{name: most}), name) == most


def test_settings_that_may_be_zero_accept_zero() -> None:
    settings = BrokerSettings(port=0, broker_id=0, permission=0)

    assert (settings.port, settings.broker_id, settings.permission) == (0, 0, 0)
