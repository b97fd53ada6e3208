"""Settings of the servers from the environment, as in a container."""

from pathlib import Path

import click
import pytest

from pocketmq.cli import main


@pytest.mark.parametrize("name", ["serve", "broker", "nameserver"])
def test_address_and_folder_come_from_the_environment_unless_an_option_is_given(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POCKETMQ_HOST", "0.0.0.0")
    monkeypatch.setenv("POCKETMQ_DATA", "/data")
    command = main.get_command(click.Context(main), name)
    assert command is not None

    by_environment = command.make_context(name, []).params
    by_option = command.make_context(name, ["--host", "10.0.0.7", "--data", "here"]).params

    assert (by_environment["host"], Path(by_environment["folder"])) == ("0.0.0.0", Path("/data"))
    assert (by_option["host"], Path(by_option["folder"])) == ("10.0.0.7", Path("here"))


@pytest.mark.parametrize("name", ["serve", "broker"])
def test_the_advertised_address_comes_from_the_environment(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POCKETMQ_ADVERTISE", "mq.example.com")
    command = main.get_command(click.Context(main), name)
    assert command is not None

    assert command.make_context(name, []).params["advertise"] == "mq.example.com"
