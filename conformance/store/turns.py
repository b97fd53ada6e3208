"""One store, written by both in turns: PocketMQ, Apache, PocketMQ, Apache … Each must serve what the other wrote.

    PocketMQ writes the sample ─► Apache serves it, appends ─► PocketMQ reads, verifies, appends ─► Apache serves, appends ─► …

What Apache served just before it stopped is what PocketMQ must read, byte by byte, and the other way round.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from conformance.apache import ApacheBroker
from conformance.broker_line import GROUP, PRODUCER_GROUP, BrokerLine
from conformance.report import Scenario, Trial
from conformance.store import serving
from conformance.store.drafts import (
    BURST,
    LONGEST_LEVEL,
    Draft,
    burst,
    draft,
    new_unique_key,
    noise,
    sample,
    topics_for,
)
from conformance.store.file_sizes import DEFAULT, SMALL, FileSizes
from conformance.store.our_store import OurStore, verify
from conformance.store.snapshots import QueueKey, Snapshot, differences, read_from
from conformance.store.tables import add_topics, read_offsets, read_topics, unknown_to_apache, write_tables
from pocketmq.codes import Compression, RequestCode, SysFlag
from pocketmq.model import properties as names
from pocketmq.model.message import StoredMessage
from pocketmq.model.message_id import OffsetId
from pocketmq.model.names import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from pocketmq.protocol.api.messages import EndTransaction
from pocketmq.protocol.batch import encode_batch
from pocketmq.protocol.compression import compress, with_compression

BY_QUEUE: Final = "Apache serves every message of every queue that PocketMQ wrote: bytes, offsets, counts"
BY_ID: Final = "… each by its id, those outside all queues included"
BY_KEY: Final = "… each by its keys and its unique key"
BY_TAG: Final = "… by tags"
BY_TIME: Final = "… by time"
TABLES: Final = "Apache reads topics, groups and offsets from PocketMQ's tables"
DELAYED: Final = "Apache delivers a delayed message that PocketMQ stored, once, when it is due"
OURS_READS: Final = "turn {}: PocketMQ reads all that Apache appended, and the tables it changed"
SOUND: Final = "turn {}: store verify calls the store sound after Apache's stop"
SOUND_OURS: Final = "turn {}: store verify calls the store sound after PocketMQ's stop"
APACHE_READS: Final = "turn {}: Apache serves all that both wrote, by queue, id and key"

SYSTEM_TOPICS: Final = (SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, TIMER_TOPIC)
GROWING: Final = ("Late", *SYSTEM_TOPICS)
"""Topics to which a running broker adds messages by itself."""
DUE_S: Final = 30.0


def scenario(name: str, sizes: FileSizes, turns: int) -> Scenario:
    later = (SOUND, OURS_READS, SOUND_OURS, APACHE_READS)
    checks = [BY_QUEUE, BY_ID, BY_KEY, BY_TAG, BY_TIME, TABLES, DELAYED]
    checks += [check.format(turn) for turn in range(1, turns + 1) for check in later]
    return Scenario(name, checks, lambda trial: _Turns(sizes, trial).run(turns))


class _Turns:
    def __init__(self, sizes: FileSizes, trial: Trial) -> None:
        self._sizes = sizes
        self._trial = trial
        self._folder: Path = trial.folder / "store"
        self._topics = dict(topics_for(trial.version))
        self._known: Snapshot = {}
        """Everything that must be in the queues now."""
        self._outside: list[StoredMessage] = []
        """Messages that are in the log and in no queue."""

    def run(self, turns: int) -> None:
        self._write_sample()
        with self._apache() as broker, BrokerLine(broker.port) as line:
            self._check_sample(line)
            self._let_apache_append(line, 1)
        for turn in range(1, turns + 1):
            self._read_and_append(turn)
            with self._apache() as broker, BrokerLine(broker.port) as line:
                self._expect(APACHE_READS, turn, self._flaws_of_apache(line))
                if turn < turns:
                    self._let_apache_append(line, turn + 1)

    def _apache(self) -> ApacheBroker:
        trial = self._trial
        return ApacheBroker(trial.version, trial.folder, self._sizes.apache_settings(), trial.say)

    def _expect(self, check: str, turn: int, flaws: Iterator[str] | list[str]) -> None:
        self._trial.expect(check.format(turn), flaws)

    def _queues(self) -> list[QueueKey]:
        """All queues that may hold messages of ours."""
        named = [(topic, queue_id) for topic, queues in self._topics.items() for queue_id in range(queues)]
        levels = [(SCHEDULE_TOPIC, queue_id) for queue_id in range(LONGEST_LEVEL)]
        timer = [] if self._trial.version.startswith("4.") else [(TIMER_TOPIC, 0)]
        return [*named, *levels, (HALF_TOPIC, 0), (OP_HALF_TOPIC, 0), *timer]

    # PocketMQ's part

    def _write_sample(self) -> None:
        self._trial.say("PocketMQ writes the sample")
        with OurStore(self._folder, self._sizes) as ours:
            self._append(ours, sample(self._trial.version, self._sizes.largest_body))
            self._append(ours, burst(), per_turn=BURST)
        write_tables(self._folder, self._topics)

    def _append(self, ours: OurStore, drafts: list[Draft], per_turn: int = 7) -> None:
        for written, one in zip(ours.append(drafts, per_turn), drafts, strict=True):
            if one.enters_queue:
                self._known.setdefault((one.topic, one.queue_id), []).append(written)
            else:
                self._outside.append(written)

    def _read_and_append(self, turn: int) -> None:
        trial = self._trial
        self._expect(SOUND, turn, verify(self._folder, self._sizes))
        trial.say(f"PocketMQ reads and appends, turn {turn}")
        with OurStore(self._folder, self._sizes) as ours:
            trial.say(f"store opened {ours.report}")
            found = ours.read(self._queues())
            flaws = [
                *differences(self._known, found, GROWING),
                *self._flaws_of_tables(turn),
                *self._flaws_of_keys(ours),
            ]
            self._expect(OURS_READS, turn, flaws)
            self._known = {key: messages for key, messages in found.items() if messages}
            self._append(ours, _appended_by_us(turn, self._sizes.largest_body))
        self._topics[f"Ours{turn}"] = 2
        add_topics(self._folder, {f"Ours{turn}": 2})
        self._expect(SOUND_OURS, turn, verify(self._folder, self._sizes))

    def _flaws_of_tables(self, turn: int) -> Iterator[str]:
        topic = read_topics(self._folder).topic_config_table.get(f"Apache{turn}")
        if topic is None or topic.write_queue_nums != 4:
            yield f"topics.json has {topic} for a topic that Apache made with 4 queues"
        offset = read_offsets(self._folder).offset_table.get(f"Apache{turn}@{GROUP}", {}).get(0)
        if offset != turn:
            yield f"consumerOffset.json has {offset} for an offset that was committed as {turn}"

    def _flaws_of_keys(self, ours: OurStore) -> Iterator[str]:
        """PocketMQ finds by key what either side entered into the index."""
        for messages in self._known.values():
            for message in messages:
                unique = message.properties.get(names.UNIQ_KEY)
                for key, is_unique in [(unique, True), *((key, False) for key in message.keys)]:
                    if not key:
                        continue
                    found = ours.store.find_by_key(message.topic, key, 64, unique=is_unique)
                    if message.log_offset not in [one.log_offset for one in found]:
                        yield f"PocketMQ does not find {message.topic} at {message.log_offset} by {key!r}"

    # Apache's part

    def _check_sample(self, line: BrokerLine) -> None:
        trial, known = self._trial, self._known
        everything = self._everything()
        trial.expect(BY_QUEUE, serving.flaws_in_queues(line, known, GROWING))
        trial.expect(BY_ID, serving.flaws_by_id(line, everything))
        trial.expect(BY_KEY, serving.flaws_by_key(line, everything))
        tagged = {key: known[key] for key in (("Orders", 0), ("Words", 0), ("Packed", 0))}
        trial.expect(BY_TAG, serving.flaws_by_tag(line, tagged))
        trial.expect(BY_TIME, self._flaws_of_times(line))
        trial.expect(TABLES, unknown_to_apache(line, self._topics))
        trial.expect(DELAYED, self._flaws_of_delay(line))

    def _flaws_of_apache(self, line: BrokerLine) -> Iterator[str]:
        everything = self._everything()
        yield from serving.flaws_in_queues(line, self._known, GROWING)
        yield from serving.flaws_by_id(line, everything)
        yield from serving.flaws_by_key(line, [one for one in everything if one.topic not in SYSTEM_TOPICS])

    def _everything(self) -> list[StoredMessage]:
        return [*(message for messages in self._known.values() for message in messages), *self._outside]

    def _flaws_of_times(self, line: BrokerLine) -> Iterator[str]:
        users = {key: messages for key, messages in self._known.items() if key[0] not in SYSTEM_TOPICS}
        if not self._trial.version.startswith("4."):
            return serving.flaws_by_time(line, users)
        # 4.9 first chooses a file of the queue by when it was last changed, which says little about small files.
        in_one_file = {key: some for key, some in users.items() if len(some) <= self._sizes.queue_file_entries}
        return serving.flaws_by_nearest_time(line, in_one_file)

    def _flaws_of_delay(self, line: BrokerLine) -> Iterator[str]:
        _wait_for(lambda: line.max_offset("Late", 0) > 0)
        bodies = [message.body for message in line.read_queue("Late", 0)]
        if bodies != [b"late 2"]:
            yield f"the topic of the delayed messages holds {bodies}"

    def _let_apache_append(self, line: BrokerLine, turn: int) -> None:
        """Messages of all kinds, by Apache's own hand; then take down what it serves of all that there is."""
        self._trial.say(f"Apache appends, turn {turn}")
        _append_by_apache(line, turn, self._sizes.largest_body)
        self._topics[f"Apache{turn}"] = 4
        late = line.max_offset("Late", 0)
        line.send("Late", 0, b"soon", {names.UNIQ_KEY: new_unique_key(), names.DELAY: "1"})
        _wait_for(lambda: line.max_offset("Late", 0) > late)
        self._known = {key: messages for key, messages in read_from(line, self._queues()).items() if messages}


def _append_by_apache(line: BrokerLine, turn: int, largest_body: int) -> None:
    def properties(tags: str = "", keys: str = "", **others: str) -> dict[str, str]:
        given = {names.UNIQ_KEY: new_unique_key(), names.TAGS: tags, names.KEYS: keys, **others}
        return {name: value for name, value in given.items() if value}

    for number in range(60):
        text = f"Apache {turn}.{number} ".encode() * (number % 5 + 1)
        line.send("Orders", number % 4, text, properties("TagA", f"apache{turn}-{number}", n=str(number)), flag=number)
    for number in range(4):
        body = noise(largest_body - 31 * number, 1000 * turn + number)
        line.send("Bulk", 0, body, properties("Noise", f"apacheBulk{turn}-{number}"))
    line.send("Words", 0, "текст 中文 ü 🚀".encode(), properties("中文", "ключ", имя="значение"))
    packed = compress(b"compress me, Apache " * 500, Compression.ZLIB)
    line.send("Packed", 0, packed, properties("ZLIB"), sys_flag=with_compression(0, Compression.ZLIB))
    for number in range(5):
        line.send(f"Apache{turn}", 0, f"new topic {number}".encode(), properties(keys=f"new{turn}-{number}"))
    line.commit(f"Apache{turn}", 0, turn)
    items = [(number, f"batch {number}".encode(), f"KEYS\x01batch{turn}-{number}\x02".encode()) for number in range(6)]
    line.send("Orders", 1, encode_batch(items), properties("Batch"), code=RequestCode.SEND_BATCH_MESSAGE)
    line.send("Orders", 2, b"in two hours", properties("Late", "twoHours", DELAY="18"))
    line.send("Orders", 3, b"in an hour; 4.9 knows no such time", properties("Late", "hour", TIMER_DELAY_SEC="3600"))
    _commit_a_deal(line, properties("Deal", f"deal{turn}", TRAN_MSG="true", PGROUP=PRODUCER_GROUP))


def _commit_a_deal(line: BrokerLine, properties: dict[str, str]) -> None:
    half = line.send("Deals", 0, b"deal by Apache", properties, sys_flag=SysFlag.TRANSACTION_PREPARED)
    line.call(
        RequestCode.END_TRANSACTION,
        EndTransaction(
            producer_group=PRODUCER_GROUP,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=OffsetId.parse(half.msg_id).offset,
            commit_or_rollback=SysFlag.TRANSACTION_COMMIT,
            from_transaction_check=False,
            msg_id=properties[names.UNIQ_KEY],
            transaction_id=half.transaction_id,
        ),
    )


def _appended_by_us(turn: int, largest_body: int) -> list[Draft]:
    return [
        *(
            draft("Orders", number % 4, f"ours {turn}.{number}".encode(), tags="TagB", keys=f"ours{turn}-{number}")
            for number in range(70)
        ),
        *(draft(f"Ours{turn}", number % 2, b"ours", keys=f"first{turn}-{number}") for number in range(30)),
        *(draft("Bulk", 0, noise(largest_body, 7000 * turn + number), keys=f"ours{turn}") for number in range(3)),
        draft("Words", 0, "снова мы".encode(), tags="中文", keys="ключ", properties={"имя": "значение"}),
    ]


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DUE_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)


SCENARIOS: Final = (scenario("small files", SMALL, 2), scenario("default sizes", DEFAULT, 1))
