"""`pocketmq.Server`: real sockets, a real store, and nothing left behind."""

import asyncio
import gc
import inspect
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from conformance.broker_line import BrokerLine
from tests.net.certificates import make_authority, make_certificate

import pocketmq
from pocketmq.client import Credentials, Producer, PushConsumer, client_context
from pocketmq.codes import RequestCode
from pocketmq.embedded import SERVER_ARGUMENTS
from pocketmq.errors import InvalidSetting, ListenFailed, UsageError, WrongState
from pocketmq.net.address import Address
from pocketmq.net.tls import ServerTlsFiles
from pocketmq.protocol.bodies.properties_text import read_properties
from pocketmq.protocol.bodies.topics import ClusterInfo

READY_S = 0.5
SLOWNESS = 6
"""How much slower a busy machine may be."""


def line_to(address: str) -> BrokerLine:
    return BrokerLine(Address.parse(address).port)


def send(server: pocketmq.Server, body: bytes) -> int:
    with line_to(server.broker_address) as line:
        return line.send("T", 0, body, {}).queue_offset


def bodies(server: pocketmq.Server) -> list[bytes]:
    with line_to(server.broker_address) as line:
        return [message.body for message in line.read_queue("T", 0)]


def own_threads() -> set[str]:
    """Names of all threads except those that asyncio keeps for its executor."""
    return {thread.name for thread in threading.enumerate() if not thread.name.startswith("asyncio_")}


def loop_threads() -> int:
    """How many servers run on a loop in a thread of their own; tests before this one may keep some for their module."""
    return sum(thread.name == "pocketmq server" for thread in threading.enumerate())


def open_files() -> set[str]:
    gc.collect()
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.add(f"{entry.name} {os.readlink(entry)}")  # noqa: PTH115 a pipe is not a path
        except FileNotFoundError:
            continue  # the one by which the folder is read
    return found


def test_blocking_code_gets_a_server_that_stores_messages() -> None:
    with pocketmq.Server() as server:
        assert send(server, b"first") == 0
        assert send(server, b"second") == 1
        assert bodies(server) == [b"first", b"second"]


def test_async_code_gets_a_server_in_its_own_loop() -> None:
    async def main() -> None:
        before, loops_before = own_threads(), loop_threads()
        async with pocketmq.Server() as server:
            assert await asyncio.to_thread(send, server, b"x") == 0
            assert await asyncio.to_thread(bodies, server) == [b"x"]
            assert loop_threads() == loops_before
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        assert tasks == set()
        assert own_threads() == before

    asyncio.run(main())


def test_the_name_server_knows_the_broker() -> None:
    with pocketmq.Server() as server, line_to(server.name_server) as line:
        known = ClusterInfo.decode(line.call(RequestCode.GET_BROKER_CLUSTER_INFO).body)

        assert known.broker_addr_table["broker-a"].broker_addrs == {0: server.broker_address}


def test_it_is_ready_soon() -> None:
    with pocketmq.Server():
        pass  # what is imported by the first one

    began = time.perf_counter()
    with pocketmq.Server():
        took_s = time.perf_counter() - began

    assert took_s < READY_S * SLOWNESS


def test_a_temporary_folder_is_removed_with_the_server() -> None:
    with pocketmq.Server() as server:
        send(server, b"x")
        folder = server.data
        assert (folder / "broker-a" / "commitlog").is_dir()

    assert not folder.exists()


def test_a_given_folder_is_kept_and_can_be_used_again(tmp_path: Path) -> None:
    with pocketmq.Server(tmp_path / "data") as server:
        send(server, b"kept")
        assert server.data == tmp_path / "data"

    with pocketmq.Server(str(tmp_path / "data")) as server:
        assert bodies(server) == [b"kept"]


def test_log_files_keep_the_size_that_they_have(tmp_path: Path) -> None:
    with pocketmq.Server(tmp_path, settings={"mappedFileSizeCommitLog": 1024 * 1024}) as server:
        send(server, b"kept")

    with pocketmq.Server(tmp_path) as server:
        assert server.broker_settings.store.log_file_bytes == 1024 * 1024
        assert bodies(server) == [b"kept"]


def test_several_servers_run_at_once_and_share_nothing() -> None:
    with pocketmq.Server() as first, pocketmq.Server() as second, pocketmq.Server() as third:
        send(second, b"x")
        send(second, b"y")

        assert len({first.name_server, second.name_server, third.name_server}) == 3
        assert send(first, b"z") == 0
        assert bodies(second) == [b"x", b"y"]


def test_a_stopped_server_leaves_no_threads_and_files() -> None:
    with pocketmq.Server() as server:
        send(server, b"x")
    before = open_files(), {thread.ident for thread in threading.enumerate()}

    for _ in range(3):
        with pocketmq.Server() as server:
            send(server, b"x")

    assert {thread.ident for thread in threading.enumerate()} <= before[1]
    assert open_files() == before[0]


def test_settings_are_named_as_in_broker_conf() -> None:
    settings: dict[str, str | int | bool] = {
        "transactionTimeOut": 2000,
        "longPollingEnable": False,
        "brokerName": "b",
        "regionId": "R",
    }
    with pocketmq.Server(flush="sync", settings=settings) as server, line_to(server.broker_address) as line:
        told = read_properties(line.call(RequestCode.GET_BROKER_CONFIG).body)

    assert (told["transactionTimeOut"], told["longPollingEnable"], told["regionId"]) == ("2000", "false", "R")
    assert told["flushDiskType"] == "SYNC_FLUSH"
    assert told["storePathRootDir"].endswith("/b")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"listnPort": 1}, "listnPort is not known; did you mean listenPort"),
        ({"storePathRootDir": "x"}, "storePathRootDir cannot be set here; use --data, in a program the argument data"),
        (
            {"flushDiskType": "SYNC_FLUSH"},
            "flushDiskType cannot be set here; use --flush sync or --flush async, in a program the argument flush",
        ),
        ({"traceOn": "perhaps"}, "traceOn=perhaps is not true or false"),
    ],
)
def test_an_invalid_setting_is_rejected_before_anything_starts(settings: dict[str, str | int], why: str) -> None:
    with pytest.raises(InvalidSetting, match=why):
        pocketmq.Server(settings=settings)


def test_a_setting_without_effect_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    pocketmq.Server(settings={"minInSyncReplicas": 2, "brokerFastFailureEnable": False})

    assert "minInSyncReplicas has no effect here" in caplog.text
    assert "brokerFastFailureEnable has no effect here" in caplog.text


def test_an_invalid_flush_mode() -> None:
    with pytest.raises(InvalidSetting, match="use 'async' or 'sync'"):
        pocketmq.Server(flush="often")


def test_an_address_that_others_reach_needs_an_explicit_argument() -> None:
    with pytest.raises(InvalidSetting, match="open_to_the_network_without_authentication"):
        pocketmq.Server(host="0.0.0.0")


def test_a_failed_start_leaves_nothing_running() -> None:
    with pocketmq.Server():
        pass
    threads, files = threading.active_count(), open_files()

    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ListenFailed):
        pocketmq.Server(broker_port=taken.getsockname()[1]).__enter__()

    assert threading.active_count() == threads
    assert open_files() == files


def test_its_addresses_are_unknown_before_it_runs() -> None:
    server = pocketmq.Server()

    for ask in (lambda: server.name_server, lambda: server.broker_address, lambda: server.data):
        with pytest.raises(WrongState, match="is not running"):
            ask()


def test_it_runs_once() -> None:
    with pocketmq.Server() as server:
        pass

    with pytest.raises(WrongState, match="started only once"), server:
        pass


def test_a_plain_with_works_inside_a_running_loop_as_in_a_notebook() -> None:
    async def main() -> None:
        with pocketmq.Server() as server:
            assert await asyncio.to_thread(send, server, b"x") == 0

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # newer Pythons warn about every fork with threads
def test_a_forked_child_leaves_server_and_data_to_its_parent() -> None:
    with pocketmq.Server() as server:
        send(server, b"x")
        child = os.fork()
        if not child:
            server.__exit__()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

        assert bodies(server) == [b"x"]
        assert server.data.is_dir()


def test_importing_pocketmq_does_not_import_the_broker() -> None:
    code = "import sys, pocketmq; print(*sys.modules); pocketmq.Server; print(*sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    before, after = done.stdout.splitlines()
    assert "pocketmq.broker" not in before
    assert "pocketmq.broker.broker" in after


def test_an_unknown_name_is_reported() -> None:
    with pytest.raises(AttributeError, match="module 'pocketmq' has no attribute 'Sever'"):
        _ = pocketmq.Sever  # type: ignore[attr-defined]


# accounts and TLS


ACCOUNTS = """
[[account]]
access_key = "orders"
secret = "the secret of orders"
topics = { "orders*" = ["Pub", "Sub"] }
groups = { "workers" = ["Sub"] }

[[account]]
access_key = "broker"
secret = "the secret of brokers"
clusters = { "DefaultCluster" = ["Update"] }
"""
ORDERS = Credentials("orders", "the secret of orders")


@pytest.fixture
def accounts(tmp_path: Path) -> Path:
    path = tmp_path / "accounts.toml"
    path.write_text(ACCOUNTS)
    return path


def consumed(name_server: str, topic: str, **options: Any) -> bytes:
    """The body of the first message that a push consumer gets."""
    bodies: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    consumer = PushConsumer(name_server, group="workers", start_at="first", **options)
    consumer.on(topic)(lambda message: bodies.put(message.body))
    with consumer:
        return bodies.get(timeout=30)


def test_with_accounts_python_clients_work_signed_and_not_otherwise(accounts: Path) -> None:
    with pocketmq.Server(accounts=accounts) as server:
        with Producer(server.name_server, credentials=ORDERS) as producer:
            producer.send("orders-eu", b"signed")
            with pytest.raises(pocketmq.PocketMQError, match="Topic:other"):
                producer.send("other", b"x")
        body = consumed(server.name_server, "orders-eu", credentials=ORDERS)
        with Producer(server.name_server) as unsigned, pytest.raises(pocketmq.PocketMQError, match="cannot be null"):
            unsigned.send("orders-eu", b"x")

    assert body == b"signed"


@pytest.mark.parametrize("mutual", [False, True], ids=["server", "mutual"])
def test_with_tls_python_clients_connect_and_plain_text_is_refused(tmp_path: Path, mutual: bool) -> None:
    authority = make_authority(tmp_path)
    certificate = make_certificate(tmp_path, authority)
    client_ca = authority.cert if mutual else None
    tls = ServerTlsFiles(cert=certificate.cert, key=certificate.key, client_ca=client_ca)
    shown = (certificate.cert, certificate.key) if mutual else (None, None)
    context = client_context(authority.cert, cert=shown[0], key=shown[1])

    with pocketmq.Server(tls=tls) as server:
        with Producer(server.name_server, tls=context) as producer:
            producer.send("T", b"secret")
        body = consumed(server.name_server, "T", tls=context)
        with Producer(server.name_server) as plain, pytest.raises(pocketmq.PocketMQError):
            plain.send("T", b"x")
        if mutual:
            nobody = client_context(authority.cert)
            with Producer(server.name_server, tls=nobody) as unknown, pytest.raises(pocketmq.PocketMQError):
                unknown.send("T", b"x")

    assert body == b"secret"


def test_accounts_without_permission_to_register_brokers(accounts: Path) -> None:
    accounts.write_text(ACCOUNTS.replace('"Update"', '"Get"'))

    with pytest.raises(InvalidSetting, match="can register brokers; give one clusters = "):
        pocketmq.Server(accounts=accounts).__enter__()


def test_with_accounts_it_may_listen_where_others_reach_it(accounts: Path) -> None:
    pocketmq.Server(host="0.0.0.0", accounts=accounts)


@pytest.mark.parametrize("name", ["accountsFile", "tls.server.certPath"])
def test_accounts_and_tls_are_not_settings_of_the_broker_alone(name: str) -> None:
    with pytest.raises(InvalidSetting, match=f"{name} cannot be set here"):
        pocketmq.Server(settings={name: "file"})


FORKING = """
import os, sys
from pocketmq import Server

with Server() as server:
    folder = server.data
    child = os.fork()
    if child == 0:
        sys.exit(0)
    os.waitpid(child, 0)
    print(folder.exists(), (folder / "broker-a" / "commitlog").exists(), flush=True)
print(folder.exists(), flush=True)
"""


def test_a_child_of_a_fork_that_exits_leaves_the_data_of_its_parent_alone() -> None:
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=60, check=False)

    assert (done.stdout, done.returncode) == ("True True\nFalse\n", 0), done.stderr


def test_an_unknown_argument_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UsageError, match=r"Server has no argument 'broker_prot'; did you mean 'broker_port'"):
        pocketmq.Server(broker_prot=0)  # type: ignore[arg-type]


def test_every_argument_has_a_misspelling_that_suggests_it() -> None:
    arguments = inspect.signature(pocketmq.Server).parameters

    assert set(SERVER_ARGUMENTS) == arguments.keys() - {"unknown"}


def test_a_host_for_metrics_without_a_port_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="metrics_host has no effect without metrics_port"):
        pocketmq.Server(metrics_host="127.0.0.1")
