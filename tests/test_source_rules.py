"""Rules of the source that a reader relies on: one module reads the time, one touches the disk, names, docstrings and sizes.

Each guard takes one `Source` and yields a sentence for each fault. Each guard is tested on small sources that break its
rule, so that none can pass because it finds nothing.
"""

import ast
from collections.abc import Callable, Iterator

import pytest
from tests.source_code import Source, imports, in_full, sources, spellings, used_names, verdict


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PURE = ("codes", "errors", "model", "protocol", "compiled")

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
"""What other modules may take from `os`; all the rest of it is taken for a file call."""

FILE_MODULES = words("dbm fcntl fileinput glob linecache shelve shutil sqlite3 tempfile")
FILE_NAMES = {"open", "io.open", "io.open_code", "io.FileIO"}
PATH_CALLS = words(
    "read_text read_bytes write_text write_bytes iterdir rglob is_file is_dir is_symlink mkdir rmdir symlink_to "
    "hardlink_to readlink expanduser lstat"
)
PATH_CALLS_IF_PATHLIB = words("chmod cwd glob home resolve samefile stat touch")
"""Words that other things have methods for too, so they count only in a module that imports pathlib."""

IMPURE_MODULES = words("asyncio concurrent multiprocessing select selectors ssl subprocess")
GET_ATTRIBUTES_LATE = {
    "pocketmq.net.connection": "asyncio passes the transport to connection_made",
    "pocketmq.testing.memory_transport": "a pipe and the two ends of its connection refer to each other",
}
MAX_MODULES = 500
"""450 hold what one broker, its client and Spark need; the others are for gRPC, replicas, change data capture and frameworks."""
MAX_MODULE_LINES = 500
MAX_FUNCTION_LINES = 60
SHAPELESS_NAMES = ("Manager", "Impl", "Service", "Helper", "Helpers", "Util", "Utils", "Wrapper")


def reads_a_clock(source: Source) -> Iterator[str]:
    if source.package == "clock":
        return
    for node, name in used_names(source):
        if name in CLOCK_READS:
            yield f"{source.at(node)} reads the time by {name}: use a Clock, or a parameter"


def touches_a_file(source: Source) -> Iterator[str]:
    if source.package in ("files", "system"):
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
        case "exists", []:
            return True
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
            case ast.Call(func=function) if in_full(function, spelled) == "mmap.mmap":
                yield node, "mmap.mmap"


def is_not_pure(source: Source) -> Iterator[str]:
    if source.package not in PURE:
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield f"{source.at(node)} awaits: {source.package} is pure, what waits belongs to net or above"
    for node, name in imports(source):
        if name.partition(".")[0] in IMPURE_MODULES:
            yield f"{source.at(node)} imports {name}: {source.package} is pure, what waits belongs to net or above"


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


def is_too_long(source: Source) -> Iterator[str]:
    if (lines := max((node.end_lineno or 0 for node in source.tree.body), default=0)) > MAX_MODULE_LINES:
        yield f"{source.module} has {lines} lines: split it at a place where a reader may stop"
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield f"{source.at(node)} {node.name} has {lines} lines: let it call functions with names of their own"


def gets_an_attribute_late(source: Source) -> Iterator[str]:
    """An attribute without a value: the object is not complete when its constructor returns."""
    if source.module in GET_ATTRIBUTES_LATE:
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.AnnAssign) and node.value is None and isinstance(node.target, ast.Attribute):
            yield f"{source.at(node)} declares {ast.unparse(node.target)} without a value: give it one in the constructor"


Guard = Callable[[Source], Iterator[str]]
GUARDS: list[Guard] = [
    reads_a_clock,
    touches_a_file,
    is_not_pure,
    has_a_shapeless_name,
    has_no_docstring,
    is_too_long,
    gets_an_attribute_late,
]


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.__name__)
def test_no_module_of_the_source_breaks_the_rules(guard: Guard) -> None:
    assert [sentence for source in sources() for sentence in guard(source)] == []


def test_the_source_has_few_modules() -> None:
    assert len(sources()) <= MAX_MODULES, "merge modules with the only one that imports them before you add another"


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
    assert verdict(reads_a_clock, "pocketmq.broker.delivery.delays", text)
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
def test_a_time_passed_as_an_argument_is_allowed(text: str) -> None:
    assert verdict(reads_a_clock, "pocketmq.broker.delivery.delays", text) == []


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
def test_a_call_through_files_is_allowed(text: str) -> None:
    assert verdict(touches_a_file, "pocketmq.store.segment", text) == []


@pytest.mark.parametrize(
    "text", ["async def f(): ...", "async def f():\n    await g()", "import asyncio", "from ssl import SSLContext"]
)
def test_waiting_in_a_pure_package_is_found(text: str) -> None:
    assert verdict(is_not_pure, "pocketmq.protocol.pending_calls", text)
    assert verdict(is_not_pure, "pocketmq.net.peer", text) == []


@pytest.mark.parametrize("ending", SHAPELESS_NAMES)
def test_a_class_name_without_meaning_is_found(ending: str) -> None:
    assert verdict(has_a_shapeless_name, "pocketmq.broker.topics", f"class Topic{ending}: ...")
    assert verdict(has_a_shapeless_name, "pocketmq.broker.topics", f"class {ending}Failed: ...") == []


@pytest.mark.parametrize("module", ["pocketmq.net.utils", "pocketmq.broker.topic_manager", "pocketmq.helpers"])
def test_a_module_name_without_meaning_is_found(module: str) -> None:
    assert verdict(has_a_shapeless_name, module, "")


def test_a_missing_docstring_is_found() -> None:
    assert verdict(has_no_docstring, "pocketmq.net.pool", "import ssl")
    assert verdict(has_no_docstring, "pocketmq.net.pool", '"""Why."""') == []


def test_a_long_module_or_function_is_found() -> None:
    lines = "    pass\n" * (MAX_FUNCTION_LINES - 1)

    assert verdict(is_too_long, "pocketmq.net.pool", f"def f():\n{lines}") == []
    assert verdict(is_too_long, "pocketmq.net.pool", f"async def f():\n{lines}    pass\n")
    assert verdict(is_too_long, "pocketmq.net.pool", "x = 1\n" * MAX_MODULE_LINES) == []
    assert verdict(is_too_long, "pocketmq.net.pool", "x = 1\n" * (MAX_MODULE_LINES + 1))


def test_an_attribute_without_a_value_is_found() -> None:
    late = "class A:\n    def __init__(self):\n        self.task: int"

    assert verdict(gets_an_attribute_late, "pocketmq.net.pool", late)
    assert verdict(gets_an_attribute_late, "pocketmq.net.pool", f"{late} = 1") == []
