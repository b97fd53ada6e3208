"""Every command of the documentation runs unchanged, with sample data, or has a reason why no test can run it."""

import re
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner
from tests.cli.program import ACCOUNTS, SECRET, ended, programs, ready
from tests.doc_pages import PAGES, Command, commands
from tests.net.certificates import make_authority, make_certificate

import pocketmq
from pocketmq.cli import main
from pocketmq.cli.commands import ExitCode
from pocketmq.console.users import hash_password

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ELSEWHERE = {
    "reference/cli.md": "tests/cli/test_cli_document.py",
    "start/data-engineer.md": "tests/test_start_pages.py",
    "start/developer.md": "tests/test_start_pages.py",
    "start/operator.md": "tests/test_start_pages.py",
}
"""Pages whose commands another test runs."""
ON_SPARK = ("guides/pipelines.md", "guides/archive.md")
"""Pages whose commands share the session of Spark."""
NOT_PROGRAMS_OF_OURS = {
    ".": "a word of the shell",
    "cd": "the test has a folder of its own",
    "curl": "another program; tests/metrics and tests/console ask the same address",
    "docker": "another program, with a daemon",
    "helm": "needs a cluster; `make chart` renders the same chart",
    "pipx": "asks a package index; `make installs` runs it",
    "podman": "needs an engine; `make image` runs it",
    "uv": "asks a package index; `make installs` runs it",
    "uvx": "asks a package index; `make installs` runs it",
    "export": "a word of the shell",
    "git": "asks another machine",
    "kill": "ends programs of the reader; tests/demo/kills.py does so",
    "kubectl": "needs a cluster; tests/deploy reads the same files",
    "(cd": "starts a program in the background",
    "make": "takes minutes; tests/test_docs.py checks that there is such a command",
    "mvn": "asks Maven Central",
    "pip": "asks a package index",
    "python": "tests/test_start_pages.py runs the programs of the page",
    "python3": "makes an environment for pip; the Makefile makes one alike",
    ".venv/bin/python": "measures for minutes; tests/test_bench.py and its neighbours run the same programs, shortened",
    "tar": "unpacks what Maven gets",
    "systemctl": "changes this machine",
    "sudo": "changes this machine",
}
SERVERS = {
    "serve": ("--namesrv-port", "0", "--broker-port", "0"),
    "nameserver": ("--port", "0"),
    "broker": ("--port", "0"),
    "console": ("--port", "0"),
    "proxy": ("--port", "0"),
}
"""Programs that run until they are stopped, with any free port instead of their own."""
NOT_RUN = {
    r"console user .*": "asks for a password; tests/cli/test_console.py gives one",
    r"(serve|nameserver|broker|console|proxy)\b.*": "runs until it is stopped; another test here starts it and stops it",
    r"demo\b.*": "takes two minutes; tests/demo runs it",
    r"pipeline run\b.*": "starts a Spark Connect of its own; `make spark-places` does",
    r"pipeline archive .* --table .*": "needs a library of Maven",
    r"pipeline cdc .*": "needs a library of Maven; `python -m conformance --part lake` and `make cdc` have it",
    r"pipeline (archive|lake|replay) .*/data/orders.*": "needs a library of Maven; `python -m conformance --part lake` has it",
    r"pipeline \w+ --config \S+ --(master|remote) .*": "needs a cluster of Spark; `make spark-cluster` has one",
}
"""Commands of ours, without the first word. Their options are read all the same."""
OTHER_MACHINE = re.compile(r"\b10\.0\.0\.\d+\b")
QUICKLY = {"--continuous": "--once", "10m": "0s"}
"""Words that would let a command run for long, and what it is given instead."""
EXIT_CODES = {"doctor --topic orders --group billing": ExitCode.REFUSED}
"""Of commands that find something."""


def reason_not_to_run(command: Command) -> str | None:
    program, *words = command.words
    if program != "pocketmq":
        return NOT_PROGRAMS_OF_OURS.get(program)
    text = " ".join(words)
    return next((reason for known, reason in NOT_RUN.items() if re.fullmatch(known, text)), None)


def is_server(command: Command) -> bool:
    kind = command.words[1:2]
    return command.words[0] == "pocketmq" and kind != () and kind[0] in SERVERS and command.words[2:3] != ("user",)


@pytest.mark.parametrize("page", PAGES)
def test_a_command_is_ours_or_has_a_reason_not_to_run(page: str) -> None:
    others = [command for command in commands(page) if command.words[0] != "pocketmq"]

    assert [str(command) for command in others if reason_not_to_run(command) is None] == []


@pytest.mark.parametrize("page", PAGES)
def test_the_options_of_every_command_are_read(page: str) -> None:
    for command in commands(page):
        if command.words[0] == "pocketmq":
            parse([word for word in command.words[1:] if word != "&"])


def parse(words: Sequence[str]) -> None:
    """Parse a command line as the program does, without running it; UsageError for one that it would refuse."""
    context = click.Context(main, info_name="pocketmq")
    command: click.Command = main
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        _, found, rest = command.resolve_command(context, rest)
        assert found is not None
        command = found
    command.make_context(command.name, rest, parent=context)


@pytest.mark.parametrize("page", [page for page in PAGES if page not in (*ELSEWHERE, *ON_SPARK)])
def test_the_commands_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not any(reason_not_to_run(command) is None for command in commands(page)):
        return
    store = stopped_store(tmp_path / "store")
    with pocketmq.Server() as server:
        before = {
            "group reset billing": lambda: set_up_group(server.name_server),
            "dlq show bank": lambda: leave_dead_letter(server.name_server, "bank", "payments"),
        }
        run_all(commands(page), server.name_server, tmp_path, monkeypatch, {"DIR": str(store)}, before)


@pytest.mark.parametrize("page", ON_SPARK)
def test_the_commands_of_pipelines_run(
    spark: "SparkSession", page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pocketmq.Server() as server, pocketmq.Server(settings={"brokerName": "broker-b"}) as other:
        before = {"replay --dlq billing": lambda: leave_dead_letter(server.name_server)}
        places = {"10.0.0.7:9876": server.name_server, "10.1.0.7:9876": other.name_server}
        run_all(commands(page), server.name_server, tmp_path, monkeypatch, places, before)


@pytest.mark.parametrize("page", [page for page in PAGES if any(map(is_server, commands(page)))])
def test_the_servers_of_a_page_start_and_stop(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On this machine, with free ports. Later commands of a page may use servers of earlier ones."""
    write_files_of_servers(tmp_path)
    with pocketmq.Server() as server, programs(tmp_path) as start:
        monkeypatch.setenv("NAMESRV_ADDR", server.name_server)
        places = {"10.0.0.5:9876": server.name_server, "5557": "0", "0.0.0.0": "127.0.0.1", "&": "--json"}
        running = []
        for number, command in enumerate(filter(is_server, commands(page))):
            kind, *words = (places.get(word, word) for word in command.words[1:])
            words = [OTHER_MACHINE.sub("127.0.0.1", word) for word in words]
            data = [] if kind in ("console", "proxy") else ["--data", f"data-{number}"]
            console = ["--console-port", 0] if "--console" in words else []
            process = start(kind, *words, *SERVERS[kind], *data, *console, "--json", OPERATOR_SECRET=SECRET)
            told = ready(process)
            if kind == "nameserver":
                places["10.0.0.7:9876"] = told["address"]
            running.append(process)
        for process in reversed(running):
            process.send_signal(signal.SIGINT)
            log = ended(process)
            assert (process.returncode, [line for line in log.splitlines() if " ERROR " in line]) == (0, [])


def write_files_of_servers(folder: Path) -> None:
    """Accounts, settings, users and a certificate, under the names that the pages use."""
    broker = '[[account]]\naccess_key = "brokers"\nsecret = "of brokers"\nclusters = { DefaultCluster = ["Update"] }\n'
    (folder / "accounts.toml").write_text(ACCOUNTS + broker)
    (folder / "broker.conf").write_text("brokerName=broker-a\nbrokerRole=ASYNC_MASTER\nflushDiskType=ASYNC_FLUSH\n")
    (folder / "console.users").write_text(f"ada:operator:{hash_password('correct horse')}\n")
    server = make_certificate(folder, make_authority(folder))
    server.cert.rename(folder / "server.pem")
    server.key.rename(folder / "server.key")


def run_all(
    wanted: Sequence[Command],
    name_server: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    places: dict[str, str] | None = None,
    before: dict[str, Callable[[], None]] | None = None,
) -> None:
    """Run the runnable commands, in the order of the page, in one folder and against one server. `before` is called
    for commands with such words.
    """
    monkeypatch.setenv("NAMESRV_ADDR", name_server)
    monkeypatch.chdir(folder)
    given = {**QUICKLY, **(places or {})}
    for command in wanted:
        if reason_not_to_run(command) is not None:
            continue
        for known, prepare in (before or {}).items():
            if known in str(command):
                prepare()
        # Java is in the folder in which its session was made.
        words = [given.get(word, re.sub(r"^\./", f"{folder}/", word)) for word in command.words[1:]]
        result = CliRunner().invoke(main, words, input="y\n")
        expected = EXIT_CODES.get(" ".join(command.words[1:]), ExitCode.OK)
        assert (str(command), result.exit_code) == (str(command), expected), result.output
        assert result.exception is None or isinstance(result.exception, SystemExit)
        assert "Traceback" not in result.output


def stopped_store(folder: Path) -> Path:
    """The store of a broker that was stopped, with messages of the topic `Orders`."""
    with (
        pocketmq.Server(data=folder) as server,
        pocketmq.Admin(server.name_server) as admin,
        pocketmq.Producer(server.name_server) as producer,
    ):
        admin.topics.create("Orders", queues=1)
        for number in range(3):
            queue = pocketmq.MessageQueue("Orders", "broker-a", 0)
            producer.send("Orders", b"%d" % number, keys="order-4711", queue=queue)
    [log] = folder.rglob("commitlog")
    return log.parent


def set_up_group(name_server: str) -> None:
    with pocketmq.Admin(name_server) as admin:
        admin.topics.create("orders", queues=1)
        admin.groups.create("billing")


def leave_dead_letter(name_server: str, group: str = "billing", topic: str = "orders") -> None:
    """A dead letter as a broker stores it: of a group, for a topic."""
    with pocketmq.Admin(name_server) as admin, pocketmq.Producer(name_server) as producer:
        if not admin.topics.exists(topic):
            admin.topics.create(topic)
        admin.topics.create(f"%DLQ%{group}", queues=1)
        admin.groups.create(group)
        letter = pocketmq.Message(f"%DLQ%{group}", b"{}")
        letter.properties["RETRY_TOPIC"] = topic
        producer.send(letter)


def test_the_first_commands_of_the_readme_are_found() -> None:
    """Also commands with the folder of an environment, which no list of programs names."""
    typed = list(map(str, commands("README.md")))

    assert typed[:2] == ["python3 -m venv .venv '&&' .venv/bin/pip install .", "pocketmq serve"]
    assert "pocketmq pipeline run --broker" in typed


@pytest.mark.parametrize("page", PAGES)
def test_installations_are_from_the_checkout_or_from_built_wheels(page: str) -> None:
    """No package index has PocketMQ yet."""
    installs = [
        command.words
        for command in commands(page)
        if command.words[:2] == ("pip", "install") and "--find-links" not in command.words
    ]

    assert [words for words in installs if any(word.startswith("pocketmq") for word in words)] == []


def test_every_exception_is_on_a_page() -> None:
    """A reason that no command needs is removed."""
    texts = [" ".join(command.words[1:]) for page in PAGES for command in commands(page)]

    assert [known for known in NOT_RUN if not any(re.fullmatch(known, text) for text in texts)] == []


@pytest.mark.parametrize(
    "line", ["topic creat orders", "topic create orders --queues many", "pipeline replay --sinc 2d"]
)
def test_an_impossible_command_is_detected(line: str) -> None:
    with pytest.raises(click.UsageError):
        parse(line.split())
