"""Stores of the real Apache RocketMQ, opened by ours: every message reads back, and the same sends give the same files."""

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.golden import GOLDEN, needs_golden
from tests.store.golden_store import STORES, restore
from tests.store.kit import HandWorker

from pocketmq.codes import SysFlag
from pocketmq.files import DiskFiles
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import parse_topic
from pocketmq.protocol.compression import decompress
from pocketmq.protocol.record import decode_record
from pocketmq.store.log.log_scan import LogScan, Unreadable, list_log_files
from pocketmq.store.message_store import MessageStore
from pocketmq.store.reading import ReadStatus
from pocketmq.store.resume import ResumeFile
from pocketmq.store.settings import StoreSettings
from pocketmq.testing import FakeClock

pytestmark = [needs_golden, pytest.mark.parametrize(("version", "kind"), STORES)]

OUR_HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))


class GoldenStore:
    """A captured store, restored and opened."""

    def __init__(self, settings: StoreSettings, clock: FakeClock | None = None, store_host: bytes = OUR_HOST) -> None:
        self.settings = settings
        self.clock = clock or FakeClock(start_ms=2_000_000_000_000)
        self.workers: list[HandWorker] = []
        self.store = MessageStore(
            settings,
            store_host=store_host,
            post=lambda _: None,
            clock=self.clock,
            make_worker=lambda *_: self.workers.append(HandWorker()) or self.workers[-1],  # type: ignore[func-returns-value]
        )
        self.report = self.store.open()

    def read(self, topic: str, queue_id: int, offset: int) -> StoredMessage | None:
        result = self.store.read(topic, queue_id, offset, 1)
        return decode_record(result.body()) if result.status is ReadStatus.FOUND else None


def expected_messages(version: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((GOLDEN / "store" / version / "expected.json").read_text())
    return found


def as_captured(message: StoredMessage) -> dict[str, Any]:
    """A message with the names and values that the Java client gave it; it had decompressed the body."""
    body = decompress(message.body, message.sys_flag) if message.sys_flag & SysFlag.COMPRESSED else message.body
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.log_offset,
        "storeSize": message.size,
        "msgId": message.message_id,
        "offsetMsgId": message.offset_id,
        "tags": message.tags,
        "keys": message.properties.get("KEYS"),
        "flag": message.flag,
        "bodyCRC": message.body_crc,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_offset,
        "bornTimestamp": message.born_ms,
        "bornHost": str(message.born_host),
        "storeTimestamp": message.store_ms,
        "storeHost": str(message.store_host),
        "bodyLength": len(body),
        "bodySha256": hashlib.sha256(body).hexdigest(),
        "properties": dict(sorted(message.properties.items())),
    }


def check_messages(golden: GoldenStore, version: str, kind: str) -> None:
    missing = 0
    for expected in expected_messages(version):
        del expected["sysFlag"]
        message = golden.read(expected["topic"], expected["queueId"], expected["queueOffset"])
        if message is None:
            missing += 1
            continue
        found = as_captured(message)
        assert found == {**expected, "bodyCRC": found["bodyCRC"]}, "the client's checksum is of the inflated body"
    assert missing == 0 if kind == "clean" else missing <= 15, "the live store was copied before the last sends"


def test_every_message_reads_back_as_the_java_client_saw_it(version: str, kind: str, tmp_path: Path) -> None:
    golden = GoldenStore(restore(version, kind, tmp_path))

    assert golden.report.clean == (kind == "clean")
    assert golden.report.cut == ""
    assert golden.report.rebuilt_queues == []
    check_messages(golden, version, kind)


def test_every_message_is_found_by_its_keys(version: str, kind: str, tmp_path: Path) -> None:
    golden = GoldenStore(restore(version, kind, tmp_path))

    for expected in expected_messages(version):
        topic, properties = expected["topic"], expected["properties"]
        if golden.read(topic, expected["queueId"], expected["queueOffset"]) is None:
            continue
        if "UNIQ_KEY" in properties:
            by_unique = golden.store.find_by_key(topic, properties["UNIQ_KEY"], 64, unique=True)
            assert expected["commitLogOffset"] in [message.log_offset for message in by_unique]
        for key in properties.get("KEYS", "").split():
            by_key = golden.store.find_by_key(topic, key, 64)
            assert expected["commitLogOffset"] in [message.log_offset for message in by_key]


def test_an_apache_store_is_continued_and_can_be_opened_again(version: str, kind: str, tmp_path: Path) -> None:
    settings = restore(version, kind, tmp_path)
    golden = GoldenStore(settings)
    end = golden.store.max_offset("StoreA", 0)

    golden.store.stage(golden.store.queue(parse_topic("StoreA"), 0), b"ours", b"KEYS\x01our-key\x02", 0, 0, 0, OUR_HOST)
    golden.store.end_turn()
    golden.store.close()

    assert not (tmp_path / "abort").exists()
    point = ResumeFile(DiskFiles(), tmp_path).load()
    assert point is not None
    assert point.queues["StoreA", 0] == (0, end + 1)
    again = GoldenStore(settings)
    assert (again.report.clean, again.report.records) == (True, 0)
    check_messages(again, version, kind)
    (ours,) = again.store.find_by_key("StoreA", "our-key", 1)
    assert (ours.body, ours.queue_offset) == (b"ours", end)


def test_a_crash_after_our_broker_used_it_loses_nothing(version: str, kind: str, tmp_path: Path) -> None:
    settings = restore(version, kind, tmp_path)
    golden = GoldenStore(settings)
    golden.store._parts.close(clean=False)

    again = GoldenStore(settings)

    assert not again.report.clean
    check_messages(again, version, kind)


def test_foreign_files_of_the_broker_are_not_changed(version: str, kind: str, tmp_path: Path) -> None:
    settings = restore(version, kind, tmp_path)
    others = [path for path in tmp_path.rglob("*") if path.is_file() and path.parts[len(tmp_path.parts)] == "config"]
    others += [tmp_path / name for name in ("timerwheel", "abort.bak") if (tmp_path / name).exists()]
    before = {path: hashlib.sha256(path.read_bytes()).digest() for path in others}

    GoldenStore(settings).store.close()

    assert {path: hashlib.sha256(path.read_bytes()).digest() for path in others} == before


def captured_records(folder: Path, settings: StoreSettings) -> list[StoredMessage]:
    files = DiskFiles()
    scan = LogScan(files, list_log_files(files, folder / "commitlog"), settings.log_file_bytes)
    return [found for found in scan if not isinstance(found, Unreadable)]


def test_the_same_sends_give_the_same_files(version: str, kind: str, tmp_path: Path) -> None:
    """All of it byte for byte, but for the name of the index file, which is the moment when it was made, and log files that
    RocketMQ had made ahead. What a broker decides before it stores, such as the text of the properties, is taken as given.
    """
    settings = restore(version, kind, tmp_path / "theirs")
    records = captured_records(tmp_path / "theirs", settings)
    assert len(records) > 70
    ours = GoldenStore(
        msgspec.structs.replace(settings, folder=tmp_path / "ours"),
        FakeClock(start_ms=0),
        records[0].packed_store_host,
    )

    for record in records:
        ours.clock.step_ms(record.store_ms - ours.clock.now_ms())
        queue = ours.store.queue(parse_topic(record.topic), record.queue_id)
        offsets = ours.store.stage(
            queue,
            record.body,
            record.raw_properties,
            record.flag,
            record.sys_flag,
            record.born_ms,
            record.packed_born_host,
            record.reconsume_times,
            record.prepared_offset,
        )
        ours.store.end_turn()
        assert offsets == (record.queue_offset, record.log_offset)
        for worker in ours.workers:
            worker.run()
    ours.store.close()

    for folder in ("commitlog", "consumequeue"):
        assert used_files(tmp_path / "ours" / folder) == used_files(tmp_path / "theirs" / folder)
    assert [*used_files(tmp_path / "ours" / "index").values()] == [*used_files(tmp_path / "theirs" / "index").values()]


def used_files(folder: Path) -> dict[str, bytes]:
    contents = {
        str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }
    return {name: content for name, content in contents.items() if any(content)}
