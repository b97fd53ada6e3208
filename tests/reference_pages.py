"""Writes the generated parts of docs/reference from the code: `make reference`.

A page is written by hand, except between two marks, where a function of `PARTS` below makes the text:

    <!-- generated: options producer -->
    …
    <!-- end -->

tests/test_reference_pages.py fails while a page differs from what this module would write.
"""

import ast
import inspect
import re
import textwrap
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec

import pocketmq
import pocketmq.client
from pocketmq import errors, pipelines
from pocketmq.broker import setting_keys as broker_keys
from pocketmq.broker.settings import BrokerSettings
from pocketmq.cli import main
from pocketmq.client.admin.admin import AsyncAdmin
from pocketmq.client.admin.targets import AdminSettings, Operations
from pocketmq.client.consumer import settings as consumers
from pocketmq.client.consumer.flow_limits import WORKERS
from pocketmq.client.settings import ClientSettings, ProducerSettings
from pocketmq.client.telemetry.metrics import ALL as CLIENT_METRICS
from pocketmq.model.setting_keys import Consequence, Constant, Key
from pocketmq.nameserver import settings as name_server
from pocketmq.nameserver.settings import NameServerSettings
from pocketmq.pipelines.core.job_file import Setting, settings_of
from pocketmq.pipelines.core.settings import JobSettings, StreamSettings
from pocketmq.proxy.settings import ProxySettings, limits
from pocketmq.spark import schema
from pocketmq.spark.options.connection_options import CONNECTION_OPTIONS
from pocketmq.spark.options.metadata_options import METADATA_OPTIONS
from pocketmq.spark.options.options import OptionTable
from pocketmq.spark.options.read_options import READ_OPTIONS
from pocketmq.spark.options.write_options import WRITE_OPTIONS
from pocketmq.spark.pyspark_versions import FEATURES, SUPPORTED
from pocketmq.spark.read.metadata_tables import TABLES
from pocketmq.spark.write import sink_rows

FOLDER: Final = Path(__file__).parents[1] / "docs" / "reference"
COMMAND: Final = "make reference"
KEYS_PER_ROW: Final = 20
PART: Final = re.compile(r"(<!-- generated: ([\w -]+) -->\n).*?(?=<!-- end -->)", re.DOTALL)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    lines = [names, ["---"] * len(names), *rows]
    return "".join(f"| {' | '.join(cells)} |\n".replace("|  |", "| |") for cells in lines)


def in_cell(text: str) -> str:
    """A text in a table cell: on one line, with `|` escaped."""
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(text.split()))


# Options of clients

OPTION_CLASSES: Final[Mapping[str, type[msgspec.Struct]]] = {
    "client": ClientSettings,
    "producer": ProducerSettings,
    "consumer": consumers.GroupSettings,
    "rebalance": consumers.RebalanceSettings,
    "push": consumers.PushSettings,
    "lite-pull": consumers.LitePullSettings,
    "pull": consumers.PullSettings,
    "simple": consumers.SimpleSettings,
    "admin": AdminSettings,
}


@cache
def field_texts(kind: type) -> dict[str, str]:
    """The docstrings of the fields that a class declares itself."""
    [node] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(node, ast.ClassDef)
    found = {}
    for field, text in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            found[field.target.id] = " ".join(str(ast.literal_eval(text.value)).split())
    return found


def text_of(kind: type, field: str) -> str:
    for base in kind.__mro__:
        if field in getattr(base, "__annotations__", {}):
            return field_texts(base).get(field, "")
    raise LookupError(f"{kind.__name__} has no field {field}")


def defaults(kind: type[msgspec.Struct]) -> dict[str, object]:
    return dict(zip(kind.__struct_fields__, kind.__struct_defaults__, strict=True))


def shown(default: object) -> str:
    if isinstance(default, Enum):
        return f"`{default.name}`"
    if isinstance(default, str):
        return f'`"{default}"`' if default else "required"
    return f"`{default!r}`"


def options(name: str) -> str:
    """The options that a class declares, or gives another default."""
    kind = OPTION_CLASSES[name]
    base = kind.__mro__[1]
    known = defaults(base) if issubclass(base, ClientSettings) else {}
    rows = []
    for field, default in defaults(kind).items():
        if known.get(field, ...) == default:
            continue
        low, high = {**consumers.BOUNDS, "workers": WORKERS}.get(field, (None, None))
        bounds = "" if low is None or high is None else f" From {low:,} to {high:,}."
        rows.append((f"`{field}`", shown(default), in_cell(text_of(kind, field)) + bounds))
    return table(("option", "default", "meaning"), rows)


def grpc_settings() -> str:
    """The limits and intervals of the gRPC server."""
    rows = [(f"`{name}`", shown(default), in_cell(text_of(ProxySettings, name))) for name, default in limits().items()]
    return table(("setting", "default", "meaning"), rows)


# Keys of broker.conf and namesrv.conf


class Program(NamedTuple):
    """A program that has a configuration file."""

    settings: msgspec.Struct
    keys: Mapping[str, Key]
    constants: Mapping[str, Constant | Consequence]
    without_effect: Mapping[str, str]
    write: Callable[[Any], dict[str, str]]


PROGRAMS: Final = {
    "broker": Program(
        BrokerSettings(), broker_keys.KEYS, broker_keys.CONSTANTS, broker_keys.WITHOUT_EFFECT, broker_keys.write_keys
    ),
    "nameserver": Program(
        NameServerSettings(),
        name_server.KEYS,
        name_server.CONSTANTS,
        name_server.NOT_HONOURED,
        name_server.write_keys,
    ),
}


def key_text(settings: msgspec.Struct, path: str) -> str:
    """The docstring of the field that a key such as `store.flush` stands for."""
    *folders, field = path.split(".")
    for name in folders:
        settings = getattr(settings, name)
    return text_of(type(settings), field)


def keys(name: str, when: str) -> str:
    program = PROGRAMS[name]
    values = program.write(program.settings)
    rows = [
        (f"`{key}`", in_cell(values.get(key) or "none"), in_cell(key_text(program.settings, known.field)))
        for key, known in program.keys.items()
        if known.at_run_time == (when == "running")
    ]
    return table(("key", "default", "meaning"), rows)


def fixed_keys(name: str) -> str:
    program = PROGRAMS[name]
    rows = [
        (f"`{key}`", f"`{constant.value_of(program.settings)}`".replace("``", "empty"), in_cell(constant.why))
        for key, constant in program.constants.items()
    ]
    return table(("key", "value", "reason"), rows)


def ignored_keys(name: str) -> str:
    by_reason: dict[str, list[str]] = {}
    for key, reason in PROGRAMS[name].without_effect.items():
        by_reason.setdefault(reason, []).append(f"`{key}`")
    rows = [
        (in_cell(reason), ", ".join(names[first : first + KEYS_PER_ROW]))
        for reason, names in by_reason.items()
        for first in range(0, len(names), KEYS_PER_ROW)
    ]
    return table(("reason", "keys"), rows)


# Spark


def columns(use: str) -> str:
    if use in TABLES:
        rows = [f"| `{field.name}` | {field.type} | {field.meaning} |" for field in TABLES[use]]
    else:
        rows = list(schema.markdown_table() if use == "read" else sink_rows.markdown_table())
    return table(("column", "type", "meaning"), []) + "".join(f"{row}\n" for row in rows)


def pyspark_versions() -> str:
    """What each PySpark offers, and what the connector does without it."""
    versions = [f"{major}.{minor}" for major, minor in SUPPORTED]
    rows = [
        (one.what, *("yes" if version >= one.since else "no" for version in SUPPORTED), one.without or "–")
        for one in FEATURES
    ]
    return table(("PySpark offers", *versions, "without it"), rows)


def spark_options(use: str) -> str:
    shared = OptionTable(CONNECTION_OPTIONS).markdown_rows()
    tables = {"read": READ_OPTIONS, "metadata": METADATA_OPTIONS, "write": WRITE_OPTIONS}
    chosen = shared if use == "connection" else tables[use].markdown_rows()
    rows = [row for row in chosen if use == "connection" or row not in shared]
    return table(("option", "values", "default", "for", "meaning", "example"), []) + "".join(f"{row}\n" for row in rows)


# Metrics

LABELS: Final = {
    "rocketmq_messages_in_total": "topic, is_system",
    "rocketmq_throughput_in_total": "topic, is_system",
    "rocketmq_messages_out_total": "topic, consumer_group, is_retry, is_system",
    "rocketmq_throughput_out_total": "topic, consumer_group, is_retry, is_system",
    "rocketmq_send_back_messages_total": "topic, consumer_group, is_retry, is_system",
    "rocketmq_send_to_dlq_messages_total": "consumer_group",
    "rocketmq_delayed_messages": "level",
    "rocketmq_undeliverable_messages_total": "kind",
    "rocketmq_consumer_lag_messages": "topic, consumer_group",
    "rocketmq_consumer_lag_latency": "topic, consumer_group",
    "rocketmq_consumer_inflight_messages": "topic, consumer_group",
    "rocketmq_refused_requests_total": "processor, cause",
    "rocketmq_denied_requests_total": "cause",
    "rocketmq_processor_watermark": "processor",
    "rocketmq_processor_head_wait": "processor",
    "rocketmq_consumer_connections": "consumer_group",
    "rocketmq_broker_closed_connections_total": "cause",
    "rocketmq_nameserver_brokers": "cluster",
    "rocketmq_nameserver_closed_connections_total": "cause",
    "rocketmq_proxy_clients": "type",
}
"""Beside `cluster`, `node_type` and `node_id`. A metric without values shows no labels; the test compares those that have some."""
DENIED: Final = ("rocketmq_denied_requests_total", "counter")
"""Only servers with accounts have it."""


class Exposed(NamedTuple):
    """A metric as the page of a server declares it."""

    name: str
    kind: str
    help: str


@cache
def exposed() -> tuple[tuple[Exposed, ...], str]:
    """The metrics of a server with name server, broker and gRPC, and its page."""
    from tests.broker.metrics.asked import page_of

    with pocketmq.Server(metrics_port=0, grpc_port=0) as server:
        page = page_of(server)
    found = re.findall(r"^# HELP (\S+) (.*)\n# TYPE \S+ (\S+)$", page, re.MULTILINE)
    return tuple(Exposed(name, kind, text) for name, text, kind in found), page


def server_metrics(which: str) -> str:
    marks = {"process": "process_", "nameserver": "rocketmq_nameserver_", "proxy": "rocketmq_proxy_"}

    def belongs(name: str) -> bool:
        return name.startswith(marks[which]) if which in marks else not name.startswith(tuple(marks.values()))

    found = [one for one in dict.fromkeys(exposed()[0]) if belongs(one.name)]
    if which == "broker":
        found.append(Exposed(*DENIED, "Requests refused for lack of permission; only with accounts"))
    rows = [(f"`{one.name}`", one.kind, LABELS.get(one.name, ""), in_cell(one.help)) for one in found]
    return table(("metric", "type", "labels", "meaning"), rows)


def client_metrics() -> str:
    rows = [(f"`{one.name}`", one.kind.value, ", ".join(one.labels), in_cell(one.help)) for one in CLIENT_METRICS]
    return table(("metric", "type", "labels", "meaning"), rows)


# Commands


def command_of(words: Iterable[str]) -> tuple[click.Command, click.Context]:
    command: click.Command = main
    context = click.Context(main, info_name="pocketmq", max_content_width=100, terminal_width=100)
    for word in words:
        assert isinstance(command, click.Group)
        found = command.get_command(context, word)
        assert found is not None, word
        command, context = found, click.Context(found, info_name=word, parent=context)
    return command, context


def record_of(parameter: click.Parameter, context: click.Context) -> tuple[str, str] | None:
    """Name and help of an option; None for an argument, which the usage shows."""
    record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
    return None if record is None else (in_cell(f"`{record[0]}`"), in_cell(record[1].replace("  [", " [")))


@cache
def shared_records() -> tuple[tuple[str, str], ...]:
    """The options that every command has which connects to a cluster."""
    ls, show = (
        {record for parameter in command.params if (record := record_of(parameter, context))}
        for command, context in (command_of(("topic", "ls")), command_of(("group", "show")))
    )
    command, context = command_of(("topic", "ls"))
    ordered = (record_of(parameter, context) for parameter in command.params)
    shared = tuple(record for record in ordered if record in ls & show and record is not None)
    return tuple(record for record in shared if not record[0].startswith("`--json"))


def help_text(command: click.Command) -> str:
    """The help as Markdown: paragraphs, and blocks that click leaves as they are."""
    out = []
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b\n"):
            out.append("```text\n" + paragraph.removeprefix("\b\n") + "\n```")
        else:
            out.append("\n".join(textwrap.wrap(" ".join(paragraph.split()), 100, break_on_hyphens=False)))
    return "\n\n".join(out) + "\n"


def command_section(words: tuple[str, ...]) -> Iterator[str]:
    command, context = command_of(words)
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"### pocketmq {' '.join(words)}\n\n```text\npocketmq {' '.join(words)} {usage}\n```\n\n{help_text(command)}"
    records = [record for parameter in command.params if (record := record_of(parameter, context))]
    connects = set(shared_records()) <= set(records)
    own = [record for record in records if not connects or record not in shared_records()]
    if own:
        yield "\n" + table(("option", "meaning"), own)
    if connects:
        yield "\nAlso the [options for connecting](#options-for-connecting).\n"


def commands(*words: str) -> str:
    """A command, or all commands of a group."""
    command, context = command_of(words)
    if isinstance(command, click.Group):
        sections = ["".join(command_section((*words, name))) for name in command.list_commands(context)]
        return "\n".join(sections)
    return "".join(command_section(words))


def connecting() -> str:
    return table(("option", "meaning"), shared_records())


# Errors


def error_classes(kind: type[errors.PocketMQError] = errors.PocketMQError) -> Iterator[type[errors.PocketMQError]]:
    yield kind
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from error_classes(child)


def error_tree() -> str:
    def lines(kind: type[errors.PocketMQError], indent: str) -> Iterator[str]:
        children = [child for child in kind.__subclasses__() if child.__module__ == errors.__name__]
        for child in children:
            is_last = child == children[-1]
            yield f"{indent}{'└─' if is_last else '├─'} {child.__name__}"
            yield from lines(child, indent + ("   " if is_last else "│  "))

    return "```text\n" + "\n".join(["PocketMQError", *lines(errors.PocketMQError, "")]) + "\n```\n"


def error_table() -> str:
    rows = []
    for kind in error_classes():
        text = inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0]
        code = f"{kind.code.name} ({int(kind.code)})"
        rows.append((f"`{kind.__name__}`", code, "yes" if kind.retriable else "no", kind.fault.value, in_cell(text)))
    return table(("class", "code", "retriable", "fault", "meaning"), rows)


# Pipelines


def setting_row(setting: Setting) -> tuple[str, str, str]:
    flag = f"`--{setting.flag}`" if setting.is_flag else f"`{setting.key}` (file only)"
    description, _, default = setting.description.partition("  [default: ")
    if setting.is_required:
        default = "required"
    elif default:
        default = default.removesuffix("]")
    elif setting.is_switch:
        default = "on" if setting.default else "off"
    elif setting.default not in (None, "", (), [], {}):
        default = f"`{getattr(setting.default, 'text', setting.default)}`"
    return flag, default or "none", in_cell(description)


def pipeline_settings(name: str) -> str:
    """The settings of a pipeline that others lack; `common` are those of all, `streams` those of all that read a
    stream.
    """
    common = {setting.name for setting in settings_of(JobSettings)}
    streams = {setting.name: setting for setting in settings_of(StreamSettings)}
    if name == "common":
        chosen = settings_of(JobSettings)
    elif name == "streams":
        chosen = [setting for setting in streams.values() if setting.name not in common]
    else:
        known = streams if issubclass(pipelines.JOBS[name].settings, StreamSettings) else {}
        every = settings_of(pipelines.JOBS[name].settings)
        chosen = [one for one in every if one.name not in common and known.get(one.name) != one]
    return table(("flag", "default", "meaning"), map(setting_row, chosen))


# Public names


def api(package: str) -> str:
    """The public names with their first sentence, then a directive of mkdocstrings for each."""
    module = {"pocketmq": pocketmq, "client": pocketmq.client, "pipelines": pipelines, "doctor": pocketmq.doctor}[
        package
    ]
    known = {"__version__"} if module is pocketmq else set(pocketmq.__all__)
    public = {name: getattr(module, name) for name in module.__all__ if name not in known}
    public = {name: value for name, value in public.items() if not isinstance(value, types.ModuleType)}
    rows = [(f"`{name}`", in_cell(first_sentence(value))) for name, value in public.items()]
    directives = "\n".join(f"::: {module.__name__}.{name}\n" for name in public)
    return f"{table(('name', 'meaning'), rows)}\n{directives}"


def first_sentence(value: object) -> str:
    """Of the docstring of a class or function; a constant has its type."""
    if not isinstance(value, type) and not inspect.isroutine(value):
        return f"a constant, `{value}`" if isinstance(value, Enum) else f"a constant of type `{type(value).__name__}`"
    return re.split(r"(?<=\.)\s", inspect.getdoc(value) or "")[0]


def admin_calls() -> str:
    parts = {name: type(part) for name, part in vars(AsyncAdmin()).items() if isinstance(part, Operations)}
    rows = [
        (f"`{name}`", " ".join(f"`{call}`" for call in vars(kind) if not call.startswith("_")))
        for name, kind in parts.items()
    ]
    return table(("family", "calls"), rows)


def hooks() -> str:
    calls = {name: call for name, call in vars(pocketmq.Hooks).items() if not name.startswith("_")}
    rows = [(f"`{name}`", in_cell(inspect.getdoc(call) or "")) for name, call in calls.items()]
    return table(("method", "called when"), rows)


PARTS: Final[Mapping[str, Callable[..., str]]] = {
    "options": options,
    "grpc-settings": grpc_settings,
    "keys": keys,
    "fixed-keys": fixed_keys,
    "ignored-keys": ignored_keys,
    "columns": columns,
    "spark-options": spark_options,
    "pyspark-versions": pyspark_versions,
    "server-metrics": server_metrics,
    "client-metrics": client_metrics,
    "commands": commands,
    "connecting": connecting,
    "error-tree": error_tree,
    "error-table": error_table,
    "pipeline": pipeline_settings,
    "api": api,
    "admin-calls": admin_calls,
    "hooks": hooks,
}


def written(page: Path) -> str:
    """The page with every generated part written from the current code."""

    def replaced(part: re.Match[str]) -> str:
        name, *words = part[2].split()
        return f"{part[1]}\n{PARTS[name](*words)}\n"

    return PART.sub(replaced, page.read_text("utf-8"))


def generated_pages() -> list[Path]:
    return [page for page in sorted(FOLDER.glob("*.md")) if PART.search(page.read_text("utf-8"))]


if __name__ == "__main__":
    for page in generated_pages():
        text = written(page)
        if text != page.read_text("utf-8"):
            page.write_text(text, "utf-8")
            print(f"{page.relative_to(FOLDER.parents[1])}: written")  # noqa: T201
