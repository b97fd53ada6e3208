"""docs/reference/options.md says what is there: no option, word or metric is missing, and every default is the true one."""

import inspect
import re
from enum import Enum
from pathlib import Path

import msgspec
import pytest

import pocketmq
import pocketmq.client
from pocketmq.client.admin.admin import AsyncAdmin
from pocketmq.client.admin.reach import AdminSettings
from pocketmq.client.consumer.settings import (
    BOUNDS,
    WORKERS,
    GroupSettings,
    LitePullSettings,
    PullSettings,
    PushSettings,
    RebalanceSettings,
)
from pocketmq.client.hooks import Hooks
from pocketmq.client.settings import ClientSettings, ProducerSettings
from pocketmq.client.telemetry.metrics import ALL

DOCUMENT = (Path(__file__).parents[2] / "docs" / "reference" / "options.md").read_text("utf-8")
TABLES: list[tuple[str, type[msgspec.Struct], type[msgspec.Struct] | None]] = [
    ("all clients", ClientSettings, None),
    ("a producer", ProducerSettings, ClientSettings),
    ("all consumers", GroupSettings, ClientSettings),
    ("push and lite pull consumers", RebalanceSettings, GroupSettings),
    ("a push consumer", PushSettings, RebalanceSettings),
    ("a lite pull consumer", LitePullSettings, RebalanceSettings),
    ("a pull consumer", PullSettings, GroupSettings),
    ("an administrator", AdminSettings, ClientSettings),
]


def section(title: str) -> str:
    return DOCUMENT.partition(f"## {title}\n")[2].partition("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def shown(default: object) -> str:
    if isinstance(default, Enum):
        return default.name
    if isinstance(default, int) and not isinstance(default, bool):
        return f"{default:,}"
    if isinstance(default, str):
        return f"`{default}`" if default else "must be given"
    return "none" if default is None else str(default)


def defaults(kind: type[msgspec.Struct]) -> dict[str, object]:
    return dict(zip(kind.__struct_fields__, kind.__struct_defaults__, strict=True))


@pytest.mark.parametrize(("title", "kind", "base"), TABLES, ids=[title for title, _, _ in TABLES])
def test_every_option_is_there_with_its_default(
    title: str, kind: type[msgspec.Struct], base: type[msgspec.Struct] | None
) -> None:
    known = {} if base is None else defaults(base)
    own = {name: default for name, default in defaults(kind).items() if known.get(name, ...) != default}

    told = {name.strip("`"): default for name, default, _ in rows(section(f"Options of {title}"))}

    assert told == {name: shown(default) for name, default in own.items()}


def test_every_word_of_the_administrator_is_there() -> None:
    told = {family.strip("`"): set(re.findall(r"`(\w+)`", words)) for family, words in rows(section("Administration"))}

    families = {name for name, value in vars(AsyncAdmin).items() if isinstance(value, property)} - {"settings"}
    assert set(told) == families
    for family, words in told.items():
        kind = inspect.signature(vars(AsyncAdmin)[family].fget).return_annotation
        assert words == {name for name in vars(kind) if not name.startswith("_")}


def test_every_metric_and_every_hook_is_there() -> None:
    text = section("Watching")

    told = {name.strip("`"): (kind, labels) for name, kind, labels, _ in rows(text)}

    assert told == {metric.name: (metric.kind.value, ", ".join(metric.labels)) for metric in ALL}
    assert [name for name in vars(Hooks) if not name.startswith("_") and f"`{name}`" not in text] == []


def test_every_client_that_it_names_is_public() -> None:
    named = set(re.findall(r"`((?:Async)?\w*(?:Producer|Consumer|Admin))`", DOCUMENT.partition("## Sending")[0]))

    assert len(named) == 10
    assert named <= set(pocketmq.__all__)


def test_the_differences_from_rocketmq_name_options_with_their_true_defaults() -> None:
    table = section("Differences from Apache RocketMQ")
    lines = [line for line in table.splitlines() if line.startswith("| ")][2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    known: dict[str, set[str]] = {}
    for _, kind, _ in TABLES:
        for name, default in defaults(kind).items():
            known.setdefault(name, set()).add(str(default))

    assert len(lines) >= 10
    assert all(len(row) == 4 and all(row[:3]) for row in cells)
    named = [match.groups() for *_, option in cells for match in re.finditer(r"`(\w+)=([\w.]+)`", option)]
    assert len(named) == sum(bool(option) for *_, option in cells)
    assert [(name, value) for name, value in named if value not in known.get(name, ())] == []


def test_the_bounds_that_it_tells_are_those_that_are_checked() -> None:
    told = {
        name.strip("`"): (int(low.replace(",", "")), int(high.replace(",", "")))
        for title in ("push and lite pull consumers", "a push consumer")
        for name, _, text in rows(section(f"Options of {title}"))
        if (found := re.search(r"([\d,]+) to ([\d,]+)$", text))
        for low, high in [found.groups()]
    }

    assert {"pull_batch", "pull_interval_ms", "max_queue_messages", "max_span", "workers", "suspend_ms"} <= told.keys()
    assert told == {name: {**BOUNDS, "workers": WORKERS}[name] for name in told}


def test_every_extension_point_that_it_names_is_public() -> None:
    text = section("Extension points")

    for name in ("RpcHook", "OffsetStore"):
        assert f"`{name}`" in text
        assert name in pocketmq.client.__all__
    assert hasattr(pocketmq.PullConsumer, "schedule")
    assert hasattr(Hooks, "filter_messages")
