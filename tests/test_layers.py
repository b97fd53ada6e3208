"""The ladder of imports, and the doors to time and disk, kept true by reading the source.

    codes ← errors ← model   clock   files   memory  the vocabulary
      protocol                                      pure
        net   store                                 neighbours never import each other
          access   metrics                          on net, for the servers
          nameserver   broker   client
            spark ← pipelines   doctor              the client's side only
            embedded                                name server and broker in one program
              pocketmq/__init__.py                  re-exports
                console   testing                   faces: nobody imports them, but
                  demo ← cli                        the demo, which shows all the others
                pytest_plugin                       knows the front only

Each guard takes one `Source` and tells what is wrong with it in sentences. Each is tested itself, on small sources that
break its rule, so that none can pass by finding nothing.
"""

import ast
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

SRC = Path(__file__).parents[1] / "src"


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


VOCABULARY = ("codes", "errors", "model", "clock", "files", "memory", "compiled")
LIBRARY = (*VOCABULARY, "protocol", "net", "store")
SERVERS = (*LIBRARY, "access", "metrics")
SPARK_SIDE = (*VOCABULARY, "protocol.record", "client")
PROGRAMS = ("nameserver", "broker", "client")
FRONT = "pocketmq"
"""The room of `pocketmq/__init__.py`."""

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "codes": (),
    "errors": ("codes",),
    "model": ("codes", "errors"),
    "clock": (),
    "files": (),
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
    "embedded": (*SERVERS, "nameserver", "broker"),
    FRONT: (*SERVERS, *PROGRAMS, "spark", "pipelines", "doctor", "embedded"),
    "console": (*SERVERS, *PROGRAMS, "spark", "pipelines", "doctor", "embedded", FRONT),
    "demo": (*SERVERS, *PROGRAMS, "spark", "pipelines", "embedded", "console", FRONT),
    "cli": (*SERVERS, *PROGRAMS, "spark", "pipelines", "doctor", "embedded", "demo", FRONT),
    "testing": (*SERVERS, *PROGRAMS, "spark", "pipelines", "embedded", FRONT),
    "pytest_plugin": (FRONT,),
    "__main__": ("cli",),
    "pyspark_rocketmq": ("spark",),
}
PURE = ("codes", "errors", "model", "protocol", "compiled")

OPTIONAL_LIBRARIES = {
    "lz4": "an extra: looked for when the first lz4 body comes, and its absence is told then",
    "zstandard": "an extra: looked for when the first zstd body comes, and its absence is told then",
    "uvloop": "an extra: looked for when a program chooses its loop",
    "prometheus_client": "an extra: looked for when somebody wants metrics there",
    "opentelemetry": "an extra: looked for when somebody wants metrics there",
}
"""What a function may import, and why it does not stand at the top of the file."""

COMES_LATE = {
    FRONT: "`import pocketmq` stays quick",
    "pocketmq.client": "who needs a few of its modules imports these alone",
    "pocketmq.spark": "Spark imports it for whoever reads anything",
    "pocketmq.demo": "every command knows of the demo, one of them needs Spark",
}
"""Packages whose names may come when they are asked for, and why."""

CLOCK_READS = {
    *(f"time.{name}{unit}" for name in ("time", "monotonic", "perf_counter", "process_time") for unit in ("", "_ns")),
    *(f"time.{name}{unit}" for name in ("thread_time", "clock_gettime") for unit in ("", "_ns")),
    *(f"time.{name}" for name in ("localtime", "gmtime", "ctime", "asctime", "*")),
    *(f"datetime.datetime.{name}" for name in ("now", "utcnow", "today")),
    "datetime.date.today",
    "datetime.*",
}

OS_WITHOUT_FILES = words(
    "_exit cpu_count environ execv fork fspath getenv getpid getppid kill name nice PathLike process_cpu_count register_at_fork "
    "sched_getaffinity sep strerror sysconf uname urandom waitpid path.basename path.dirname path.join path.split "
    "path.splitext"
)
"""What other rooms may take from `os`; all the rest of it is taken for a file call."""

FILE_MODULES = words("dbm fcntl fileinput glob linecache shelve shutil sqlite3 tempfile")
FILE_NAMES = {"open", "io.open", "io.open_code", "io.FileIO"}
PATH_CALLS = words(
    "read_text read_bytes write_text write_bytes iterdir rglob is_file is_dir is_symlink mkdir rmdir symlink_to "
    "hardlink_to readlink expanduser lstat"
)
PATH_CALLS_IF_PATHLIB = words("chmod cwd exists glob home resolve samefile stat touch")
"""Words that other things have methods for too, so they count only in a module that imports pathlib."""

IMPURE_MODULES = words("asyncio concurrent multiprocessing select selectors ssl subprocess")
SHAPELESS_NAMES = ("Manager", "Impl", "Service", "Helper", "Helpers", "Util", "Utils", "Wrapper")


class Source(NamedTuple):
    """A module: its dotted name and what it says."""

    module: str
    tree: ast.Module
    is_package: bool = False

    @property
    def room(self) -> str:
        return room_of(self.module)

    def at(self, node: ast.AST) -> str:
        return f"{self.module}:{getattr(node, 'lineno', 0)}"


def room_of(module: str) -> str:
    """The room that a module, or a name in it, belongs to: the first word after `pocketmq`."""
    top, _, rest = module.partition(".")
    if top != "pocketmq":
        return top
    room = rest.partition(".")[0]
    return room if room in MAY_IMPORT else FRONT


@cache
def sources() -> list[Source]:
    return [
        Source(
            ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__"),
            ast.parse(path.read_text("utf-8")),
            path.name == "__init__.py",
        )
        for path in sorted(SRC.rglob("*.py"))
    ]


def imports(source: Source) -> Iterator[tuple[ast.AST, str]]:
    """Every import as a full dotted name; `from a import b` is `a.b`, as b may be a module."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(source, node)
            for alias in node.names:
                yield node, f"{base}.{alias.name}"


def _absolute(source: Source, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    steps_up = node.level - source.is_package
    parts = source.module.split(".")
    return ".".join([*parts[: len(parts) - steps_up], *([node.module] if node.module else [])])


def used_names(source: Source) -> Iterator[tuple[ast.AST, str]]:
    """Every name that is imported or read, spelled in full: `t.time` after `import time as t` is `time.time`."""
    spelled = spellings(source)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node, f"{_absolute(source, node)}.{alias.name}"
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node, _in_full(node, spelled)


def spellings(source: Source) -> dict[str, str]:
    """What each imported name stands for."""
    spelled: dict[str, str] = {}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                spelled[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                spelled[alias.asname or alias.name] = f"{_absolute(source, node)}.{alias.name}"
    return spelled


def _in_full(node: ast.expr, spelled: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return spelled.get(node.id, node.id)
    if isinstance(node, ast.Attribute) and (head := _in_full(node.value, spelled)):
        return f"{head}.{node.attr}"
    return ""


def imports_up_or_sideways(source: Source) -> Iterator[str]:
    allowed = (source.room, *MAY_IMPORT[source.room])
    for node, name in imports(source):
        if name.partition(".")[0] not in ("pocketmq", "pyspark_rocketmq"):
            continue
        room = room_of(name)
        inside = name.removeprefix("pocketmq.") if room != FRONT else FRONT
        if not any(inside == step or inside.startswith(step + ".") for step in allowed):
            yield f"{source.at(node)} imports {name}: {source.room} may import only {', '.join(allowed[1:]) or 'nothing'}"


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
            if name.partition(".")[0] not in OPTIONAL_LIBRARIES:
                yield f"{source.at(node)} imports {name} inside {function.name}: move it to the top of the file"


def reads_a_clock(source: Source) -> Iterator[str]:
    if source.room == "clock":
        return
    for node, name in used_names(source):
        if name in CLOCK_READS:
            yield f"{source.at(node)} reads the time by {name}: take a Clock, or be told the number"


def touches_a_file(source: Source) -> Iterator[str]:
    if source.room == "files":
        return
    found = [(node, name) for node, name in imports(source) if name.partition(".")[0] in FILE_MODULES]
    found += [(node, name) for node, name in used_names(source) if _is_file_name(name)]
    found += [*_path_calls(source), *_file_maps(source)]
    for node, name in found:
        yield f"{source.at(node)} touches the disk by {name}: go through `files`"


def _is_file_name(name: str) -> bool:
    if name in FILE_NAMES:
        return True
    top, _, rest = name.partition(".")
    if top != "os" or rest in ("", "path"):
        return False
    return rest not in OS_WITHOUT_FILES and rest.partition(".")[0] not in OS_WITHOUT_FILES


def _path_calls(source: Source) -> Iterator[tuple[ast.AST, str]]:
    has_paths = any(name.partition(".")[0] == "pathlib" for _, name in imports(source))
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if name in PATH_CALLS or (has_paths and (name in PATH_CALLS_IF_PATHLIB or _is_path_shaped(name, node))):
                yield node, f"Path.{name}"


def _is_path_shaped(name: str, call: ast.Call) -> bool:
    """Whether a call that `Files` has a word for too is a Path's: by what it is given."""
    match name, call.args:
        case (("open" | "unlink"), []):
            return not any(keyword.arg in ("create", "write") for keyword in call.keywords)
        case "open", [ast.Constant()]:
            return True
        case (("replace" | "rename"), [_]):
            return not call.keywords
    return False


def _file_maps(source: Source) -> Iterator[tuple[ast.AST, str]]:
    """Maps of a file; a map of -1 is plain memory."""
    spelled = spellings(source)
    for node in ast.walk(source.tree):
        match node:
            case ast.Call(args=[ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1)), *_]):
                continue
            case ast.Call(func=function) if _in_full(function, spelled) == "mmap.mmap":
                yield node, "mmap.mmap"


def is_not_pure(source: Source) -> Iterator[str]:
    if source.room not in PURE:
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield f"{source.at(node)} awaits: {source.room} is pure, what waits belongs to net or above"
    for node, name in imports(source):
        if name.partition(".")[0] in IMPURE_MODULES:
            yield f"{source.at(node)} imports {name}: {source.room} is pure, what waits belongs to net or above"


def has_a_shapeless_name(source: Source) -> Iterator[str]:
    word = source.module.rpartition(".")[2].rpartition("_")[2].capitalize()
    if word in SHAPELESS_NAMES:
        yield f"{source.module} is called after {word}: say what the module is about"
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef) and node.name.endswith(SHAPELESS_NAMES):
            yield f"{source.at(node)} class {node.name}: a {node.name} has no name yet, say what it is"


def has_no_docstring(source: Source) -> Iterator[str]:
    if not ast.get_docstring(source.tree):
        yield f"{source.module} opens without a docstring: say why the module exists"


def is_in_no_known_room(source: Source) -> Iterator[str]:
    top, _, rest = source.module.partition(".")
    room = rest.partition(".")[0] if top == "pocketmq" else top
    if room and room not in MAY_IMPORT:
        yield f"{source.module} is in room {room!r}, which the ladder does not know: give it a row in MAY_IMPORT"


Guard = Callable[[Source], Iterator[str]]
GUARDS: list[Guard] = [
    imports_up_or_sideways,
    imports_inside_a_function,
    reads_a_clock,
    touches_a_file,
    is_not_pure,
    has_a_shapeless_name,
    has_no_docstring,
    is_in_no_known_room,
]


def verdict(guard: Guard, module: str, text: str) -> list[str]:
    return list(guard(Source(module, ast.parse(text))))


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.__name__)
def test_no_module_of_the_source(guard: Guard) -> None:
    assert [sentence for source in sources() for sentence in guard(source)] == []


def test_the_guards_look_at_the_whole_vocabulary() -> None:
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
        ("pocketmq.client.producer", "from pocketmq.nameserver.routes import RouteTable"),
        ("pocketmq.client.producer", "from pocketmq.spark import source"),
        ("pocketmq.spark.reader", "from pocketmq.protocol.frames import Frame"),
        ("pocketmq.spark.reader", "from pocketmq.protocol import records"),
        ("pocketmq.spark.reader", "from pocketmq.net import pool"),
        ("pocketmq.spark.reader", "from pocketmq.broker import broker"),
        ("pocketmq.pipelines.replay", "from pocketmq.store import segment"),
        ("pocketmq.broker.broker", "from pocketmq.testing import FakeClock"),
        ("pocketmq.cli.main", "from pocketmq.console import app"),
        ("pocketmq.console.app", "import pocketmq.cli"),
        ("pocketmq", "from pocketmq.testing import FakeClock"),
        ("pocketmq.embedded.server", "from pocketmq.client import producer"),
        ("pocketmq.broker.broker", "from pocketmq.embedded import server"),
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
        ("pocketmq.pipelines.replay", "from pocketmq.spark.source import Source"),
        ("pocketmq.cli.main", "from pocketmq import __version__"),
        ("pocketmq.embedded.server", "from pocketmq.broker import broker\nfrom pocketmq.nameserver import server"),
        ("pocketmq.pytest_plugin", "import pocketmq"),
        ("pocketmq.testing.cluster", "from pocketmq.broker import broker"),
        ("pyspark_rocketmq", "from pocketmq.spark.source import Source"),
        ("pocketmq.errors", "import enum, pocketmq_extras"),
    ],
)
def test_an_import_down_the_ladder_is_fine(module: str, text: str) -> None:
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
def test_an_import_at_the_top_or_of_an_optional_library_is_fine(text: str) -> None:
    assert verdict(imports_inside_a_function, "pocketmq.net.pool", text) == []


def test_few_packages_may_import_what_is_asked_for_by_name() -> None:
    late = "def __getattr__(name):\n    from pocketmq.embedded.server import Server"

    assert verdict(imports_inside_a_function, "pocketmq", late) == []
    assert verdict(imports_inside_a_function, "pocketmq.broker.broker", late)


@pytest.mark.parametrize(
    "text",
    [
        "import time\nnow = time.time()",
        "import time\nnow = time.time_ns()",
        "import time as t\nnow = t.monotonic()",
        "import time\nread = time.perf_counter",
        "import time\nnow = time.localtime()",
        "from time import monotonic_ns",
        "from time import time as now",
        "from time import *",
        "from datetime import datetime\nnow = datetime.now()",
        "from datetime import datetime as dt\nnow = dt.utcnow()",
        "import datetime\nnow = datetime.datetime.now(datetime.UTC)",
        "import datetime as d\ntoday = d.date.today()",
        "def f(read=time.time): ...",
    ],
)
def test_a_clock_read_is_found(text: str) -> None:
    assert verdict(reads_a_clock, "pocketmq.broker.delays", text)
    assert verdict(reads_a_clock, "pocketmq.clock", text) == []


@pytest.mark.parametrize(
    "text",
    [
        "now = loop.time()",
        "now = clock.monotonic()",
        "from datetime import datetime\nday = datetime.fromtimestamp(0)",
        "import time\nzone = time.timezone",
    ],
)
def test_a_time_that_was_given_is_fine(text: str) -> None:
    assert verdict(reads_a_clock, "pocketmq.broker.delays", text) == []


@pytest.mark.parametrize(
    "text",
    [
        "open('a')",
        "with open(path, 'rb') as file: ...",
        "import io\nio.open('a')",
        "import io\nio.FileIO('a')",
        "import os\nos.pwrite(fd, data, 0)",
        "import os\nos.path.exists('a')",
        "import os as system\nsystem.unlink('a')",
        "from os import fdatasync",
        "from os import *",
        "from os.path import getsize",
        "import os.path\nos.path.getsize('a')",
        "import mmap\nview = mmap.mmap(file.fileno(), 0)",
        "from mmap import mmap as view\nview(fd, size)",
        "import shutil",
        "from tempfile import mkdtemp",
        "import fcntl",
        "path.read_bytes()",
        "self.folder.mkdir(parents=True)",
        "settings.store_dir.write_text('a')",
        "from pathlib import Path\nPath('a').exists()",
        "import pathlib\npathlib.Path.home()",
        "from pathlib import Path\npath.open()",
        "from pathlib import Path\npath.open('rb')",
        "from pathlib import Path\npath.unlink()",
        "from pathlib import Path\npath.unlink(missing_ok=True)",
        "from pathlib import Path\npath.rename(other)",
        "from pathlib import Path\npath.replace(other)",
    ],
)
def test_a_file_call_is_found(text: str) -> None:
    assert verdict(touches_a_file, "pocketmq.store.segment", text)
    assert verdict(touches_a_file, "pocketmq.files", text) == []


@pytest.mark.parametrize(
    "text",
    [
        "from pathlib import Path\nfiles.open(path, create=True)",
        "from pathlib import Path\nfiles.unlink(path)",
        "from pathlib import Path\nfiles.replace(new, path)",
        "portal.open()\nroutes.replace(table)",
        "'a-b'.replace('-', '_')",
        "dataclasses.replace(settings, port=0)",
        "import os\nos.getpid(), os.environ.get('HOME'), os.path.join('a', 'b')",
        "from os import urandom",
        "import io\nio.BytesIO()",
        "import mmap\nmemory = mmap.mmap(-1, size)",
        "from pathlib import Path\nname = Path('a') / 'b'",
        "topics.exists('T')",
        "class Counters:\n    open: int = 0",
        "status.is_dir",
    ],
)
def test_a_call_through_the_door_to_disk_is_fine(text: str) -> None:
    assert verdict(touches_a_file, "pocketmq.store.segment", text) == []


@pytest.mark.parametrize(
    "text", ["async def f(): ...", "async def f():\n    await g()", "import asyncio", "from ssl import SSLContext"]
)
def test_waiting_in_a_pure_room_is_found(text: str) -> None:
    assert verdict(is_not_pure, "pocketmq.protocol.connection", text)
    assert verdict(is_not_pure, "pocketmq.net.peer", text) == []


@pytest.mark.parametrize("ending", SHAPELESS_NAMES)
def test_a_shapeless_class_name_is_found(ending: str) -> None:
    assert verdict(has_a_shapeless_name, "pocketmq.broker.topics", f"class Topic{ending}: ...")
    assert verdict(has_a_shapeless_name, "pocketmq.broker.topics", f"class {ending}Failed: ...") == []


@pytest.mark.parametrize("module", ["pocketmq.net.utils", "pocketmq.broker.topic_manager", "pocketmq.helpers"])
def test_a_shapeless_module_name_is_found(module: str) -> None:
    assert verdict(has_a_shapeless_name, module, "")


def test_a_missing_docstring_is_found() -> None:
    assert verdict(has_no_docstring, "pocketmq.net.pool", "import ssl")
    assert verdict(has_no_docstring, "pocketmq.net.pool", '"""Why."""') == []


@pytest.mark.parametrize("module", ["pocketmq.common", "pocketmq.attic.old", "other"])
def test_a_room_that_the_ladder_does_not_know_is_found(module: str) -> None:
    assert "give it a row in MAY_IMPORT" in verdict(is_in_no_known_room, module, "")[0]


def test_every_room_may_import_only_rooms_that_exist() -> None:
    assert {room.partition(".")[0] for allowed in MAY_IMPORT.values() for room in allowed} <= set(MAY_IMPORT)
