from struct import pack

import pytest
from tests.store.made_store import ROOT, MadeStore

from pocketmq.store.tools.findings import Kind
from pocketmq.store.tools.folder_check import SafeTimes, Stop, look_at


@pytest.fixture
def store() -> MadeStore:
    return MadeStore()


def test_a_cleanly_stopped_store_is_recognised(store: MadeStore) -> None:
    condition = look_at(store.files, ROOT)

    assert condition.stop is Stop.CLEAN
    assert list(condition.findings()) == []


def test_an_abort_file_means_a_crash(store: MadeStore) -> None:
    store.write("abort", b"123")

    condition = look_at(store.files, ROOT)

    assert condition.stop is Stop.CRASHED
    assert [finding.kind for finding in condition.findings()] == [Kind.CRASHED]


@pytest.mark.parametrize(("abort", "owner"), [(b"123", "process 123"), (b"", "a program"), (b"x\xff", "a program")])
def test_a_held_lock_means_in_use(store: MadeStore, abort: bytes, owner: str) -> None:
    store.write("abort", abort)
    store.write("lock", b"lock")

    with store.files.open(ROOT / "lock") as lock:
        lock.lock()
        [finding] = look_at(store.files, ROOT).findings()

    assert finding.kind is Kind.IN_USE
    assert f"in use by {owner}:" in finding.text


def test_checking_does_not_take_the_lock(store: MadeStore) -> None:
    store.write("lock", b"lock")

    look_at(store.files, ROOT)

    with store.files.open(ROOT / "lock") as lock:
        assert lock.lock()


def test_the_checkpoint_shows_the_safe_part(store: MadeStore) -> None:
    store.write("checkpoint", pack(">qqqqq", 3, 2, 1, 9, 9), size=4096)

    condition = look_at(store.files, ROOT)

    assert (condition.safe, condition.checkpoint_flaw) == (SafeTimes(3, 2, 1), "")


@pytest.mark.parametrize(("data", "flaw"), [(b"123", "has only 3 bytes"), (b"\xff" * 40, "holds a time before 1970")])
def test_an_impossible_checkpoint_is_ignored(store: MadeStore, data: bytes, flaw: str) -> None:
    store.write("checkpoint", data)

    condition = look_at(store.files, ROOT)

    assert (condition.safe, condition.checkpoint_flaw) == (SafeTimes(), flaw)


def test_a_store_without_messages_needs_no_checkpoint(store: MadeStore) -> None:
    assert list(look_at(store.files, ROOT).check_checkpoint(newest_ms=0)) == []


def test_a_valid_checkpoint_shows_lost_messages(store: MadeStore) -> None:
    store.write("checkpoint", pack(">qqq", 5_000, 0, 0), size=4096)

    condition = look_at(store.files, ROOT)

    assert condition.knows_later(4_999)
    assert not condition.knows_later(5_000)
    assert condition.knows_later(0)
    century_ms = 100 * 365 * 86_400_000
    assert not condition._replace(safe=SafeTimes(century_ms)).knows_later(1)
