"""The ladder of imports, kept true by reading the source: between packages, and inside the six largest ones.

    codes ← errors ← model   clock   system ← files   memory   shared values, time, disk
      compiled   protocol                           pure
        net   store                                 neither imports the other
          access   metrics                          on net, for the servers
          nameserver   broker   client
            spark ← pipelines   doctor              on the client only
            proxy                                   gRPC: a client for each of its clients
            embedded                                name server, broker and proxy in one program
              pocketmq/__init__.py                  re-exports
                integrations                        frameworks, on the client
                console   testing                   no package imports them, except
                  demo ← cli                        the demo, which shows all the others
                pytest_plugin                       imports `pocketmq` only

Each guard takes one `Source` and yields a sentence for each fault. Each guard is tested on small sources that break its
rule, so that none can pass because it finds nothing.
"""

import ast
import re
from collections.abc import Callable, Iterator

import pytest
from tests.source_code import SRC, Source, imports, sources, used_names, verdict

VOCABULARY = ("codes", "errors", "model", "clock", "system", "files", "memory", "compiled")
LIBRARY = (*VOCABULARY, "protocol", "net", "store")
SERVERS = (*LIBRARY, "access", "metrics")
SPARK_SIDE = (*VOCABULARY, "protocol.record", "client")
PROGRAMS = ("nameserver", "broker", "client", "proxy")
FRONT = "pocketmq"
"""The package of `pocketmq/__init__.py`."""

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "codes": (),
    "errors": ("codes",),
    "model": ("codes", "errors"),
    "clock": (),
    "system": (),
    "files": ("system",),
    "memory": (),
    "compiled": (),
    "protocol": ("codes", "errors", "model", "compiled"),
    "net": (*VOCABULARY, "protocol"),
    "store": (*VOCABULARY, "protocol"),
    "access": (*VOCABULARY, "protocol", "net"),
    "metrics": (*VOCABULARY, "net"),
    "nameserver": SERVERS,
    "broker": SERVERS,
    "client": LIBRARY,
    "spark": (*SPARK_SIDE, "net.tls", "protocol.batch", "protocol.body_pack", "protocol.signing"),
    "pipelines": (*SPARK_SIDE, "protocol.trace_text", "spark"),
    "doctor": (*VOCABULARY, "protocol", "net", "client"),
    "proxy": (*SERVERS, "client"),
    "embedded": (*SERVERS, "nameserver", "broker", "proxy"),
    FRONT: (*SERVERS, *PROGRAMS, "spark", "pipelines", "doctor", "embedded"),
    "integrations": ("clock", "errors", "model", "client", FRONT),
    "console": (*SERVERS, *PROGRAMS, "spark", "pipelines", "doctor", "embedded", "cli.commands", FRONT),
    "demo": (*SERVERS, *PROGRAMS, "spark", "pipelines", "embedded", "console", FRONT),
    "cli": (*SERVERS, *PROGRAMS, "spark", "pipelines", "doctor", "embedded", "demo", FRONT),
    "testing": (*SERVERS, *PROGRAMS, "spark", "pipelines", "embedded", FRONT),
    "pytest_plugin": (FRONT,),
    "__main__": ("cli",),
    "pyspark_rocketmq": ("spark",),
}

INNER: dict[str, dict[str, str]] = {
    "client": {
        "received": "",
        "running": "",
        "hooks": "producer",
        "settings": "hooks",
        "cluster": "received hooks settings",
        "lifecycle": "cluster",
        "blocking": "cluster lifecycle",
        "telemetry": "hooks settings cluster producer",
        "producer": "received hooks settings cluster lifecycle blocking telemetry",
        "consumer": "received running hooks settings cluster lifecycle blocking telemetry producer",
        "admin": "received settings cluster lifecycle blocking producer consumer",
        "public_names": "running hooks settings cluster telemetry producer consumer admin",
    },
    "broker": {
        "access": "",
        "replication_settings": "",
        "settings": "replication_settings",
        "topics": "settings",
        "setting_keys": "replication_settings settings",
        "reads": "settings",
        "registration_data": "settings topics reads",
        "registration": "settings topics reads registration_data",
        "groups": "settings topics",
        "messages": "settings reads",
        "snapshots": "topics groups",
        "delivery": "settings messages",
        "stats": "settings groups requests",
        "state": "settings topics groups messages snapshots stats reads",
        "transactions": "settings messages state",
        "handlers": "settings topics setting_keys groups messages transactions stats reads state",
        "pop": "groups messages delivery reads state handlers",
        "requests": "settings state handlers",
        "replication": "settings delivery pop reads requests state",
        "parts": "access settings registration snapshots delivery transactions requests stats state handlers pop replication",
        "metrics": "requests stats state parts",
        "broker": "settings stats replication parts metrics",
    },
    "store": {
        "settings": "",
        "worker": "",
        "owner": "",
        "checkpoint": "",
        "resume": "",
        "retention": "settings",
        "log": "settings worker",
        "tables": "log",
        "queues": "settings worker log",
        "index": "settings log",
        "layout": "settings log queues index",
        "reading": "settings log queues",
        "parts": "settings worker owner checkpoint resume log tables queues index",
        "recovery": "resume log queues parts",
        "upkeep": "settings retention log queues parts recovery",
        "readable_store": "settings retention queues reading parts upkeep",
        "message_store": "settings worker retention log queues reading parts recovery readable_store",
        "receiving": "queues message_store",
        "tools": "settings owner checkpoint resume log queues index layout",
    },
    "spark": {
        "java": "",
        "pyspark_versions": "",
        "python_processes": "",
        "executors": "python_processes",
        "schema": "",
        "arrow": "python_processes schema",
        "filters": "schema arrow",
        "options": "filters",
        "broker_facts": "",
        "shared_clients": "options broker_facts",
        "decode": "schema arrow filters",
        "read": "filters options pyspark_versions python_processes executors schema broker_facts arrow shared_clients decode",
        "write": "options pyspark_versions python_processes executors schema broker_facts arrow shared_clients read",
        "arrow_read": "options python_processes schema arrow shared_clients read",
        "lineage": "options read",
        "source": "filters options pyspark_versions python_processes executors schema read write",
    },
    "proxy": {
        "messages": "",
        "settings": "",
        "statuses": "messages",
        "callers": "messages settings statuses",
        "conversion": "messages settings statuses",
        "sessions": "messages settings statuses callers",
        "routes": "messages statuses callers conversion sessions",
        "sending": "messages settings statuses callers conversion sessions routes",
        "leases": "messages settings statuses callers conversion sessions",
        "receiving": "messages settings statuses callers conversion sessions routes leases",
        "telemetry": "messages settings statuses callers conversion sessions routes sending leases",
        "server": "messages settings statuses callers sessions routes sending leases receiving telemetry",
    },
    "pipelines": {
        "core": "",
        "archive": "core",
        "mirror": "core",
        "project": "core",
        "jobs": "core archive",
        "cdc": "core archive",
    },
}
"""Inside a package: what each of its sub-packages and modules may import of it. Lowest first: a row names only rows above it."""

UPWARD = {
    ("broker", "stats", "requests"): "the runtime information contains the number of waiting requests",
    ("client", "hooks", "producer"): "an event carries the SendResult",
    ("client", "telemetry", "producer"): "traces are messages, sent like any other",
}
"""Where a row of INNER does name one below it, and why."""

MODULES = "Modules in reading order:"
"""The line of a package's docstring behind which its modules and sub-packages are listed."""

OPTIONAL_LIBRARIES = {
    "lz4": "an extra: imported when the first lz4 body arrives; a missing package is reported then",
    "zstandard": "an extra: imported when the first zstd body arrives; a missing package is reported then",
    "uvloop": "an extra: looked for when a program chooses its loop",
    "prometheus_client": "an extra: imported when a program uses its metrics",
    "opentelemetry": "an extra: imported when a program uses its metrics",
    "openlineage": "an extra: imported when a program reports its lineage",
}
"""What a function may import, and why it does not stand at the top of the file."""

COMES_LATE = {
    FRONT: "`import pocketmq` stays quick",
    "pocketmq.client": "a program that needs a few of its modules imports only these",
    "pocketmq.spark": "Spark imports it in every Python process",
    "pocketmq.demo": "the command line imports it, and one command needs Spark",
    "pocketmq.cli": "the console uses its options, and needs none of its commands",
}
"""Packages whose names may come when they are asked for, and why."""

IMPORTS_WITH_AN_EXTRA = {
    "pocketmq.embedded": "pocketmq.proxy",
}
"""Modules whose functions may import a package that needs an extra: a program without it imports them too."""

IMPORTS_WHEN_CALLED = {
    "pocketmq.spark.source": "a process of Spark reads or writes, and imports that part only",
    "pocketmq.spark.arrow_read": "a missing library is reported when read_arrow is called, not when it is imported",
    "pocketmq.spark.read.batch_reader": "the process that plans needs neither numpy nor pyarrow",
    "pocketmq.spark.read.stream_reader": "the process that plans needs neither numpy nor pyarrow",
    "pocketmq.spark.write.writer": "Spark makes the writer in a process that sends nothing",
}
"""Modules whose functions may import parts of their own package, and why. Nothing else is imported there."""


def package_of(module: str) -> str:
    """The package that a module, or a name in it, belongs to: the first word after `pocketmq`."""
    top, _, rest = module.partition(".")
    if top != "pocketmq":
        return top
    package = rest.partition(".")[0]
    return package if package in MAY_IMPORT else FRONT


def imports_up_or_sideways(source: Source) -> Iterator[str]:
    allowed = (package_of(source.module), *MAY_IMPORT[package_of(source.module)])
    for node, name in imports(source):
        if name.partition(".")[0] not in ("pocketmq", "pyspark_rocketmq"):
            continue
        package = package_of(name)
        inside = name.removeprefix("pocketmq.") if package != FRONT else FRONT
        if not any(inside == step or inside.startswith(step + ".") for step in allowed):
            yield f"{source.at(node)} imports {name}: {package_of(source.module)} may import only {', '.join(allowed[1:]) or 'nothing'}"


def imports_a_forbidden_sibling(source: Source) -> Iterator[str]:
    _, package, own, *_ = (*source.module.split("."), "", "")
    rows = INNER.get(package, {})
    if own not in rows:
        if rows and own:
            yield f"{source.module} has no row in INNER: say what {package}.{own} may import"
        return
    for node, name in imports(source):
        sibling = _sibling(package, name)
        if sibling in rows and sibling not in (own, *rows[own].split()):
            yield f"{source.at(node)} imports {name}: {package}.{own} may import only {rows[own] or 'nothing'} of {package}"


def _sibling(package: str, name: str) -> str:
    """The sub-package or module of `package` that an import goes to."""
    found = re.match(rf"pocketmq\.{package}\.(\w+)", name)
    return found[1] if found else ""


def misses_a_module_in_its_docstring(source: Source) -> Iterator[str]:
    modules = _modules_of(source.module)
    if not source.is_package or not modules:
        return
    _, _, after = (ast.get_docstring(source.tree) or "").partition(f"{MODULES}\n\n")
    listed = re.findall(r"^ *(\w+)/? {2,}\S", after, re.MULTILINE)
    for name in sorted(modules - set(listed)):
        yield f"the docstring of {source.module} does not list {name}: add it behind {MODULES!r}"
    for name in sorted(set(listed) - modules):
        yield f"the docstring of {source.module} lists {name}, which is not in the package"
    for name in sorted({name for name in listed if listed.count(name) > 1}):
        yield f"the docstring of {source.module} lists {name} twice"


def _modules_of(package: str) -> set[str]:
    folder = SRC.joinpath(*package.split("."))
    found = {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}
    return {name for name in found if not name.startswith("__")}


def imports_inside_a_function(source: Source) -> Iterator[str]:
    for node, name in used_names(source):
        if name in ("importlib.import_module", "__import__"):
            yield f"{source.at(node)} imports by {name}, which no reader and no guard can follow"
    for function in ast.walk(source.tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if source.module in COMES_LATE and function.name == "__getattr__":
            continue
        for node, name in imports(Source(source.module, ast.Module(function.body, []), source.is_package)):
            if name.startswith(IMPORTS_WITH_AN_EXTRA.get(source.module, "nothing")):
                continue
            if source.module in IMPORTS_WHEN_CALLED and name.startswith(f"pocketmq.{source.package}."):
                continue
            if name.partition(".")[0] not in OPTIONAL_LIBRARIES:
                yield f"{source.at(node)} imports {name} inside {function.name}: move it to the top of the file"


def is_in_no_known_package(source: Source) -> Iterator[str]:
    if source.package and source.package not in MAY_IMPORT:
        yield f"{source.module} is in package {source.package!r}, which the ladder does not know: give it a row in MAY_IMPORT"


Guard = Callable[[Source], Iterator[str]]
GUARDS: list[Guard] = [
    imports_up_or_sideways,
    imports_a_forbidden_sibling,
    imports_inside_a_function,
    is_in_no_known_package,
    misses_a_module_in_its_docstring,
]


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.__name__)
def test_no_module_of_the_source_breaks_the_layers(guard: Guard) -> None:
    assert [sentence for source in sources() for sentence in guard(source)] == []


def test_the_rules_cover_all_packages() -> None:
    seen = {source.module for source in sources()}

    assert {"pocketmq", "pocketmq.clock", "pocketmq.files", "pocketmq.model", "pocketmq.model.message"} <= seen


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("pocketmq.errors", "import pocketmq.model"),
        ("pocketmq.codes", "from pocketmq.errors import PocketMQError"),
        ("pocketmq.codes", "from pocketmq import errors"),
        ("pocketmq.clock", "from pocketmq.files import Files"),
        ("pocketmq.model.queue", "from pocketmq.protocol import record"),
        ("pocketmq.model.queue", "from ..protocol import record"),
        ("pocketmq.model.queue", "from .. import protocol"),
        ("pocketmq.model.queue", "from pocketmq import MessageQueue"),
        ("pocketmq.model.queue", "if TYPE_CHECKING:\n    from pocketmq.client import producer"),
        ("pocketmq.protocol.frames", "from pocketmq.clock import Clock"),
        ("pocketmq.protocol.frames", "from pocketmq.files import Files"),
        ("pocketmq.net.pool", "from pocketmq.store import segment"),
        ("pocketmq.store.segment", "import pocketmq.net.pool as pool"),
        ("pocketmq.nameserver.routes", "import pocketmq.broker"),
        ("pocketmq.broker.topics", "from pocketmq.client import admin"),
        ("pocketmq.client.producer.producer", "from pocketmq.nameserver.routes import RouteTable"),
        ("pocketmq.client.producer.producer", "from pocketmq.spark import source"),
        ("pocketmq.spark.reader", "from pocketmq.protocol.frames import Frame"),
        ("pocketmq.spark.reader", "from pocketmq.protocol import records"),
        ("pocketmq.spark.reader", "from pocketmq.net import pool"),
        ("pocketmq.spark.reader", "from pocketmq.broker import broker"),
        ("pocketmq.pipelines.jobs.replay", "from pocketmq.store import segment"),
        ("pocketmq.broker.broker", "from pocketmq.testing import FakeClock"),
        ("pocketmq.cli.main", "from pocketmq.console import app"),
        ("pocketmq.console.app", "import pocketmq.cli"),
        ("pocketmq", "from pocketmq.testing import FakeClock"),
        ("pocketmq.embedded", "from pocketmq.client import producer"),
        ("pocketmq.broker.broker", "from pocketmq import embedded"),
        ("pocketmq.pytest_plugin", "from pocketmq.broker import broker"),
        ("pyspark_rocketmq", "from pocketmq.broker import broker"),
        ("pocketmq.broker.broker", "import pyspark_rocketmq"),
    ],
)
def test_an_import_up_or_sideways_is_found(module: str, text: str) -> None:
    assert len(verdict(imports_up_or_sideways, module, text)) == 1


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("pocketmq.model.message", "from pocketmq.model import properties"),
        ("pocketmq.model.message", "from . import properties"),
        ("pocketmq.model.message", "from ..errors import InvalidMessage"),
        ("pocketmq.net.pool", "from pocketmq.clock import Clock"),
        ("pocketmq.broker.broker", "from pocketmq.store import segment\nfrom pocketmq import codes"),
        ("pocketmq.spark.reader", "from pocketmq.protocol import record"),
        ("pocketmq.spark.reader", "from pocketmq.protocol.record import decode"),
        ("pocketmq.pipelines.jobs.replay", "from pocketmq.spark.source import Source"),
        ("pocketmq.cli.main", "from pocketmq import __version__"),
        ("pocketmq.embedded", "from pocketmq.broker import broker\nfrom pocketmq.nameserver import server"),
        ("pocketmq.pytest_plugin", "import pocketmq"),
        ("pocketmq.testing.cluster", "from pocketmq.broker import broker"),
        ("pyspark_rocketmq", "from pocketmq.spark.source import Source"),
        ("pocketmq.errors", "import enum, pocketmq_extras"),
    ],
)
def test_an_import_down_the_layers_is_allowed(module: str, text: str) -> None:
    assert verdict(imports_up_or_sideways, module, text) == []


def test_relative_imports_of_a_package_start_at_the_package_itself() -> None:
    package = Source(
        "pocketmq.model", ast.parse("from .message import Message\nfrom ..protocol import record"), is_package=True
    )

    found = list(imports_up_or_sideways(package))

    assert len(found) == 1
    assert "pocketmq.protocol.record" in found[0]


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    import json",
        "def f():\n    if x:\n        from pocketmq.store import segment",
        "async def f():\n    from . import pool",
        "class A:\n    def f(self):\n        import json.decoder",
        "import importlib\nstore = importlib.import_module('pocketmq.store')",
        "from importlib import import_module as load",
        "store = __import__('pocketmq.store')",
    ],
)
def test_an_import_inside_a_function_is_found(text: str) -> None:
    assert verdict(imports_inside_a_function, "pocketmq.net.pool", text)


@pytest.mark.parametrize(
    "text",
    ["import json", "try:\n    import uvloop\nexcept ImportError:\n    uvloop = None"]
    + [f"def f():\n    import {library}" for library in OPTIONAL_LIBRARIES],
)
def test_an_import_at_the_top_or_of_an_optional_library_is_allowed(text: str) -> None:
    assert verdict(imports_inside_a_function, "pocketmq.net.pool", text) == []


def test_only_listed_packages_import_by_name() -> None:
    late = "def __getattr__(name):\n    from pocketmq.embedded import Server"

    assert verdict(imports_inside_a_function, "pocketmq", late) == []
    assert verdict(imports_inside_a_function, "pocketmq.broker.broker", late)


def test_only_listed_modules_import_parts_of_their_package_in_functions() -> None:
    part = "def reader():\n    from pocketmq.spark.read.batch_reader import TopicReader"

    assert verdict(imports_inside_a_function, "pocketmq.spark.source", part) == []
    assert verdict(imports_inside_a_function, "pocketmq.spark.schema", part)
    assert verdict(
        imports_inside_a_function, "pocketmq.spark.source", "def reader():\n    import pocketmq.client.producer"
    )


def test_no_module_of_the_connector_imports_the_front_of_its_package() -> None:
    for source in sources():
        if source.package == "spark" and source.module != "pocketmq.spark":
            assert not {"pocketmq.spark", "pocketmq.spark.RocketMQSource"} & {name for _, name in imports(source)}, (
                source.module
            )


@pytest.mark.parametrize("module", ["pocketmq.common", "pocketmq.attic.old", "other"])
def test_an_unlisted_package_is_found(module: str) -> None:
    assert "give it a row in MAY_IMPORT" in verdict(is_in_no_known_package, module, "")[0]


def test_every_package_may_import_only_packages_that_exist() -> None:
    assert {name.partition(".")[0] for allowed in MAY_IMPORT.values() for name in allowed} <= set(MAY_IMPORT)


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("pocketmq.client.cluster.routes", "from pocketmq.client.producer.producer import AsyncProducer"),
        ("pocketmq.client.cluster.routes", "from pocketmq.client import producer"),
        ("pocketmq.client.producer.producer", "from pocketmq.client.consumer.offsets import Offsets"),
        ("pocketmq.client.producer.producer", "from ..consumer import offsets"),
        ("pocketmq.broker.stats.rows", "from pocketmq.broker.parts import BrokerParts"),
        ("pocketmq.store.log.segments", "import pocketmq.store.queues.queues"),
        ("pocketmq.spark.read.chunks", "from pocketmq.spark.write.writer import TopicWriter"),
        ("pocketmq.pipelines.core.plan", "from pocketmq.pipelines.jobs import trace"),
        ("pocketmq.client.unknown.module", ""),
    ],
)
def test_an_import_of_a_forbidden_sibling_is_found(module: str, text: str) -> None:
    assert len(verdict(imports_a_forbidden_sibling, module, text)) == 1


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("pocketmq.client.cluster.routes", "from pocketmq.client.cluster.rpc import Links"),
        ("pocketmq.client.consumer.offsets", "from pocketmq.client.producer.sending import Sending"),
        ("pocketmq.client.public_names", "from pocketmq.client.admin.admin import Admin"),
        ("pocketmq.store.log.segments", "from pocketmq.files import Files"),
        ("pocketmq.client", "from pocketmq.client.public_names import Producer"),
        ("pocketmq.model.names", "from pocketmq.model import queue"),
    ],
)
def test_an_import_of_a_lower_sibling_is_allowed(module: str, text: str) -> None:
    assert verdict(imports_a_forbidden_sibling, module, text) == []


@pytest.mark.parametrize("package", INNER)
def test_a_row_names_only_rows_above_it(package: str) -> None:
    rows = list(INNER[package])
    upward = {
        (package, own, name)
        for own, allowed in INNER[package].items()
        for name in allowed.split()
        if rows.index(name) >= rows.index(own)
    }

    assert upward == {edge for edge in UPWARD if edge[0] == package}


@pytest.mark.parametrize("package", INNER)
def test_every_row_names_a_used_import(package: str) -> None:
    used: dict[str, set[str]] = {own: set() for own in INNER[package]}
    for source in sources():
        _, within, own, *_ = (*source.module.split("."), "", "")
        if within == package and own in used:
            used[own] |= {_sibling(package, name) for _, name in imports(source)}

    assert {own: set(allowed.split()) - used[own] for own, allowed in INNER[package].items()} == {
        own: set() for own in INNER[package]
    }


@pytest.mark.parametrize(
    ("listed", "fault"),
    [
        ("    arrivals   new messages\n    filters   what is read", ""),
        ("    arrivals   new messages", "does not list filters"),
        (
            "    arrivals   new messages\n    filters   what is read\n    client   a client",
            "lists client, which is not in the package",
        ),
        ("    arrivals   new messages\n    filters   what is read\n    filters   once more", "lists filters twice"),
        ("    arrivals/  a sub-package is marked so\n    filters   what is read", ""),
    ],
)
def test_a_wrong_list_of_modules_is_found(listed: str, fault: str) -> None:
    text = f'"""A package.\n\n{MODULES}\n\n{listed}\n    waiting_pops   what waits\n    replicas   what follows\n"""'

    found = list(misses_a_module_in_its_docstring(Source("pocketmq.broker.reads", ast.parse(text), is_package=True)))

    assert [sentence for sentence in found if fault not in sentence] == []
    assert len(found) == bool(fault)
