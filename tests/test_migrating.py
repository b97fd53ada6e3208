"""docs/guides/migrating.md: the tables of differences name keys and options that exist, with their true defaults."""

import re
from pathlib import Path

import msgspec
import pytest

from pocketmq.broker.setting_keys import KEYS, write_keys
from pocketmq.broker.settings import BrokerSettings
from pocketmq.client.consumer.settings import LitePullSettings, PullSettings, PushSettings
from pocketmq.client.settings import ProducerSettings

PAGE = (Path(__file__).parents[1] / "docs" / "guides" / "migrating.md").read_text("utf-8")

DIFFERENCES = {
    "Differences of the broker": [
        "first offset of a new group in a queue that never held a message",
        "sysFlag of a send",
        "a pull beyond the end of a queue",
        "offsets of an older log, after a crash or after a topic was created again",
        "a pull whose expression cannot be parsed",
        "unique keys of a batch",
        "first send to a new topic, and its creation",
        "retry topics",
        "topics created by sends, groups created by use",
        "too many topics for a name server",
        "a forward step of the wall clock",
        "a wall clock that is set back",
        "the first minutes after a start",
        "age of a log file",
        "deletion of messages that a group has not consumed",
        "an undecided transaction that is older than the log is kept",
        "a check of a transaction that could not be sent to any producer",
        "a delayed or timed message whose topic was deleted",
        "recall of a timed message of another topic",
        "notifications of members that come and go",
        "members of one group with different subscriptions",
        "`mqadmin brokerStatus`",
        "after a crash",
        "a reset that no member has applied yet",
        "offsets of `CID_RMQ_SYS_TRANS`",
        "`cloneGroupOffset` from a group that does not exist",
        "`updateBrokerConfig`",
        "keys of `broker.conf` without effect",
        "topics with `queue.type=BatchCQ` (inner batches)",
        "accounts and permissions",
        "permission for a message that is named by its log offset",
        "POP, replication",
    ],
    "Differences of the client": [
        "next pull after a failure",
        "ordered queue whose lock is not held",
        "master in the route, but not reachable",
        "listener returns nothing",
        "`ROLLBACK` with automatic commits",
        "listener that hangs, broadcast",
        "broadcast, log replaced or shortened while the member was away",
        "check for listeners that hang",
        "threads above the minimum",
        "paused member",
        "limit for a topic",
        "queue that appears later",
        "delay level above 18",
        "`RetryLater` of an ordered consumer",
        "dead letter",
        "queue near its limit",
        "group of a producer",
    ],
    "Differences of the name server": [
        "a request without a required field",
        "an unknown or forbidden setting in a change",
        "a change of settings",
        "a refused registration",
        "a broker that returns under another name",
        "a value of the KV config",
        "time until a silent broker is removed, limits",
    ],
}
"""The first cell of each row. Remove one only when PocketMQ behaves as RocketMQ there."""


def rows(heading: str) -> list[list[str]]:
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def test_every_row_describes_both_sides() -> None:
    broker, client, name_server = map(
        rows, ("Differences of the broker", "Differences of the client", "Differences of the name server")
    )

    assert [row for row in (*broker, *client) if len(row) != 4 or not row[0] or not row[2]] == []
    assert [row for row in name_server if len(row) != 3 or not all(row)] == []


@pytest.mark.parametrize("heading", DIFFERENCES)
def test_a_table_has_a_row_for_each_difference(heading: str) -> None:
    assert [row[0] for row in rows(heading)] == DIFFERENCES[heading]


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
