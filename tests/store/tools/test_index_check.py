"""The index compared with the log: special cases. tests/store/tools/test_verify.py has common damage."""

import pytest
from tests.store.made_store import INDEX_ENTRIES, INDEX_SLOTS, LOG_FILE_BYTES, ROOT, MadeStore

from pocketmq.protocol.record import decode_record
from pocketmq.store.index.growing_index_file import GrowingIndexFile
from pocketmq.store.index.index_file import IndexFile, IndexHeader, IndexShape, KeyEntry, key_hash
from pocketmq.store.tools.findings import Kind

ENTRIES_AT = 40 + 4 * INDEX_SLOTS
FOR_EVER = 2**62


@pytest.fixture
def store() -> MadeStore:
    store = MadeStore()
    for number in range(6):
        store.append(keys=f"k{number}")
    return store.derive()


def keys_of(store: MadeStore) -> list[KeyEntry]:
    """The keys of all messages, as an index of the store has them."""
    return [
        (key_hash(message.topic, key), at, message.store_ms)
        for at, message in ((at, decode_record(raw)) for at, raw in store.records.items())
        for key in (message.properties["UNIQ_KEY"], *message.keys)
    ]


def write_index(store: MadeStore, keys: list[KeyEntry]) -> str:
    """Replace the index by one file with exactly these keys."""
    for path in store.index_paths:
        store.unlink(path)
    path = "index/20260101000000000"
    shape = IndexShape(INDEX_SLOTS, INDEX_ENTRIES)
    file = GrowingIndexFile(store.files, ROOT / path, shape, IndexHeader())
    assert file.put(keys) == len(keys)
    while (step := file.next_step(FOR_EVER, FOR_EVER)) is not None:
        step.now()
    file.close()
    return path


def test_an_index_with_every_key_is_sound(store: MadeStore) -> None:
    write_index(store, keys_of(store))

    assert store.findings() == []


def test_the_last_message_before_a_restart_may_be_indexed_twice(store: MadeStore) -> None:
    keys = keys_of(store)
    write_index(store, [*keys[:6], *keys[4:6], *keys[6:]])

    assert store.findings() == []


def test_the_last_message_of_the_log_may_be_indexed_twice(store: MadeStore) -> None:
    keys = keys_of(store)
    write_index(store, [*keys, *keys[-2:]])

    assert store.findings() == []


def test_entries_without_a_record_are_reported(store: MadeStore) -> None:
    keys = keys_of(store)
    strangers = [(number, keys[5][1] + 7, keys[5][2]) for number in (111, 222)]
    path = write_index(store, [*keys[:6], *strangers, *keys[6:]])

    begin = ENTRIES_AT + 7 * 20
    assert store.told() == [("index-entry", path, begin, begin + 40)]


def test_a_missing_key_between_others_is_reported(store: MadeStore) -> None:
    keys = keys_of(store)
    path = write_index(store, keys[:5] + keys[6:])

    [finding] = store.findings()
    assert (finding.kind, finding.path) == (Kind.INDEX_KEY_MISSING, path)
    assert finding.text == f"keys of 1 message at log offset {keys[5][1]} are not in the index"


def test_a_missing_first_key_is_reported(store: MadeStore) -> None:
    keys = keys_of(store)
    write_index(store, keys[:4] + keys[5:])

    [finding] = store.findings()
    assert finding.text == f"keys of 1 message at log offset {keys[4][1]} are not in the index"


def test_a_record_that_lost_a_key_is_detected_by_the_index(store: MadeStore) -> None:
    at = list(store.records)[2]

    store.write_log(at, store.records[at].replace(b"KEYS", b"KEXS"))

    assert store.told() == [("log-changed", store.log_path(at), at, None)]


def test_entries_of_expired_records_are_accepted(store: MadeStore) -> None:
    store = MadeStore().fill()
    store.unlink(store.log_path(0))
    store.unlink(store.log_path(LOG_FILE_BYTES))

    assert store.findings() == []


def test_entries_beyond_the_log_are_wrong_after_a_clean_stop_only(store: MadeStore) -> None:
    keys = keys_of(store)
    path = write_index(store, [*keys, (5, store.end + 100, keys[-1][2])])

    clean = store.told()
    store.crash()
    crashed = store.told()

    begin = ENTRIES_AT + (len(keys) + 1) * 20
    assert clean == [("index-entry", path, begin, begin + 20)]
    assert [kind for kind, *_ in crashed] == ["crashed"]


def test_after_a_crash_the_header_may_be_older_than_entries_and_slots(store: MadeStore) -> None:
    path = write_index(store, keys_of(store))
    header = store.read(path)[:40]
    store.crash()

    store.write(path, header[:36] + (4).to_bytes(4, "big"))

    assert [kind for kind, *_ in store.told()] == ["crashed"]


@pytest.mark.parametrize("steps", range(6))
def test_after_a_crash_the_index_may_be_partly_written(store: MadeStore, steps: int) -> None:
    keys = keys_of(store)
    path = write_index(store, keys[:6])
    shape = IndexShape(INDEX_SLOTS, INDEX_ENTRIES)
    file = GrowingIndexFile(store.files, ROOT / path, shape, IndexFile(store.files, ROOT / path, shape).header)
    file.put(keys[6:])

    for _ in range(steps):
        if (step := file.next_step(FOR_EVER, FOR_EVER)) is not None:
            step.now()
    store.crash()

    assert [kind for kind, *_ in store.told() if kind != "index-behind"] == ["crashed"]


def test_a_header_with_a_too_large_count_is_reported(store: MadeStore) -> None:
    path = write_index(store, keys_of(store))

    store.write(path, (20).to_bytes(4, "big"), 36)

    [finding] = store.findings()
    assert finding.text == "the header is wrong: it counts 19 entries, but there are 12"


def test_slots_counted_as_by_old_releases_are_accepted(store: MadeStore) -> None:
    path = write_index(store, keys_of(store))

    store.write(path, (12).to_bytes(4, "big"), 32)

    assert store.findings() == []


def test_many_scattered_differences_are_counted_above_a_limit(
    store: MadeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pocketmq.store.tools.findings.MAX_RUNS", 1)
    path = write_index(store, keys_of(store))
    for number in (2, 5, 8):
        store.flip(path, ENTRIES_AT + number * 20 + 15)

    assert [finding.text for finding in store.findings()][-1] == "2 more slots and entries are wrong"


def test_an_empty_index_file_is_a_new_one(store: MadeStore) -> None:
    store.write("index/20990101000000000", b"")

    assert store.findings() == []
