"""Client ids and message ids, also after a fork."""

import os
import re
import subprocess
import sys

import pytest

from pocketmq.client.cluster import identity
from pocketmq.client.settings import ClientSettings
from pocketmq.errors import WrongState
from pocketmq.model.message_id import UniqueId


def test_a_client_id_has_the_form_of_java() -> None:
    settings = ClientSettings(client_ip="10.0.0.9")

    assert re.fullmatch(rf"10\.0\.0\.9@{os.getpid()}#\d+", identity.client_id(settings))
    assert identity.client_id(settings, stream=True) == identity.client_id(settings) + "@STREAM"


def test_instance_and_unit_names_are_part_of_the_client_id() -> None:
    settings = ClientSettings(client_ip="10.0.0.9", instance_name="two", unit_name="hz")

    assert identity.client_id(settings) == "10.0.0.9@two@hz"


def test_the_default_address_is_that_of_this_machine() -> None:
    ip = identity.client_ip(ClientSettings())

    assert re.fullmatch(r"\d+\.\d+\.\d+\.\d+", ip)
    assert identity.client_ip(ClientSettings()) is ip


def test_message_ids_contain_address_and_process_and_never_repeat() -> None:
    ids = identity.unique_ids("10.0.0.9")

    given = [ids.next(1_700_000_000_000) for _ in range(1000)]

    assert len(set(given)) == 1000
    assert identity.unique_ids("10.0.0.9") is ids
    parsed = UniqueId.parse(given[0])
    assert (parsed.ip, parsed.pid) == (bytes([10, 0, 0, 9]), os.getpid() & 0xFFFF)


FORKING = """
import os
from pocketmq.client.cluster import identity
from pocketmq.client.settings import ClientSettings
from pocketmq.errors import WrongState

settings = ClientSettings(client_ip="10.0.0.9")
before = identity.client_id(settings), identity.generation(), identity.unique_ids("10.0.0.9").next(0)[:20]
child = os.fork()
if child == 0:
    after = identity.client_id(settings), identity.generation(), identity.unique_ids("10.0.0.9").next(0)[:20]
    assert after[0] != before[0] and after[1] == before[1] + 1 and after[2] != before[2], after
    try:
        identity.require_same_process(before[1], "producer")
    except WrongState as error:
        os._exit(0 if "created before a fork" in str(error) else 1)
    os._exit(1)
assert os.waitpid(child, 0)[1] == 0
assert (identity.client_id(settings), identity.generation()) == before[:2]
print("fine")
"""


def test_a_forked_child_has_a_new_identity() -> None:
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=60, check=False)

    assert (done.stdout, done.returncode) == ("fine\n", 0), done.stdout + done.stderr


def test_the_same_process_keeps_its_identity() -> None:
    identity.require_same_process(identity.generation(), "producer")
    with pytest.raises(WrongState, match="this consumer was created before a fork"):
        identity.require_same_process(identity.generation() + 1, "consumer")
