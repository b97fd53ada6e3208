"""docs/guides/migrating.md: the tables of differences name keys and options that exist, with their true defaults."""

import re
from pathlib import Path

import msgspec

from pocketmq.broker.setting_keys import KEYS, write_keys
from pocketmq.broker.settings import BrokerSettings
from pocketmq.client.consumer.settings import LitePullSettings, PullSettings, PushSettings
from pocketmq.client.settings import ProducerSettings

PAGE = (Path(__file__).parents[1] / "docs" / "guides" / "migrating.md").read_text("utf-8")


def rows(heading: str) -> list[list[str]]:
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def test_every_row_describes_both_sides_once() -> None:
    broker, client, name_server = map(
        rows, ("Differences of the broker", "Differences of the client", "Differences of the name server")
    )

    assert (len(broker) > 20, len(client) > 10, len(name_server) > 5) == (True, True, True)
    assert [row for row in (*broker, *client) if len(row) != 4 or not row[0] or not row[2]] == []
    assert [row for row in name_server if len(row) != 3 or not all(row)] == []
    assert all(len({row[0] for row in table}) == len(table) for table in (broker, client, name_server))


def test_every_key_of_the_broker_has_its_default() -> None:
    cells = [row[3] for row in rows("Differences of the broker")]
    defaults = write_keys(BrokerSettings())
    named = [pair for cell in cells for pair in re.findall(r"`(\w+)` = ([\w.]+)", cell)]

    assert len(named) > 10
    assert all(re.fullmatch(r"(`\w+` = [\w.]+(, )?)*", cell) for cell in cells)
    assert [name for name, _ in named if name not in KEYS] == []
    assert dict(named) == {name: defaults.get(name, "none") for name, _ in named}


def test_every_option_of_the_client_has_its_default() -> None:
    cells = [row[3] for row in rows("Differences of the client")]
    kinds: list[type[msgspec.Struct]] = [ProducerSettings, PushSettings, LitePullSettings, PullSettings]
    known = {
        (name, str(default))
        for kind in kinds
        for name, default in zip(kind.__struct_fields__, kind.__struct_defaults__, strict=True)
    }

    named = [found.groups() for cell in cells for found in re.finditer(r"`(\w+)=([\w.]+)`", cell)]
    assert len(named) == sum(bool(cell) for cell in cells)
    assert [pair for pair in named if pair not in known] == []
