"""The transactions of a broker on a disk in memory, with a producer that records its check-backs."""

from typing import Self

import msgspec
from tests.broker.states import state_over
from tests.store.kit import HOST, ROOT
from tests.store.open_store import OpenStore

from pocketmq.broker.messages import Draft, StoredPosition
from pocketmq.broker.settings import BrokerSettings, TransactionSettings
from pocketmq.broker.transactions.checks import ProducerPeer
from pocketmq.broker.transactions.half import as_half
from pocketmq.broker.transactions.transactions import Transactions
from pocketmq.codes import TransactionState
from pocketmq.model.message import StoredMessage
from pocketmq.protocol.api.messages import CheckTransactionState, EndTransaction
from pocketmq.protocol.bodies.topics import ConsumerOffsets, TopicConfig
from pocketmq.protocol.command import Command
from pocketmq.protocol.record import decode_record, decode_records
from pocketmq.testing import run
from pocketmq.testing.disk.model import Survives

GROUP = "PG"
COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN
ROOMY = {"log_file_bytes": 64 * 1024, "queue_file_entries": 1000, "index_slots": 500, "index_entries": 2000}


class Producer:
    """The connection to a producer. It keeps the requests of the broker until a test reads them."""

    def __init__(self) -> None:
        self.questions: list[Command] = []

    def oneway(self, command: Command) -> None:
        self.questions.append(command)

    def take(self) -> list[tuple[CheckTransactionState, StoredMessage]]:
        """The check-backs since the last call."""
        questions, self.questions = self.questions, []
        return [(CheckTransactionState.decode(q.ext), decode_record(q.body)) for q in questions]


class Lab:
    """Transactions of one run of a broker; `crash` and `restart` return the next run."""

    def __init__(self, opened: OpenStore, settings: BrokerSettings, saved: ConsumerOffsets | None = None) -> None:
        self.opened, self.store, self.clock = opened, opened.store, opened.clock
        self.state = state = state_over(opened, settings)
        self.in_use, self.appender, self.topics, self.offsets = (
            state.settings,
            state.appender,
            state.topics,
            state.offsets,
        )
        self.topics.put([TopicConfig("T", 4, 4)], self.clock.now_ms())
        self.saved = saved or ConsumerOffsets()
        self.offsets.restore(self.saved)
        self.producer = Producer()
        self.connected = {GROUP}
        self.announced = 0
        self.transactions = Transactions(state, self._find, self._announce)
        self.transactions.load()

    @classmethod
    def new(cls, *, transaction: TransactionSettings | None = None, **store_changes: object) -> Self:
        settings = BrokerSettings(transaction=transaction or TransactionSettings())
        return cls(OpenStore.small(None, None, **{**ROOMY, **store_changes}), settings)

    def _find(self, group: str, topic: str) -> ProducerPeer | None:
        return self.producer if group in self.connected else None

    def _announce(self) -> None:
        self.announced += 1

    # the next run

    def save_offsets(self) -> None:
        """What a broker does every few seconds."""
        self.saved = self.offsets.snapshot()

    def restart(self) -> "Lab":
        self.transactions.ledger.write_ops()
        self.opened.run_workers()
        self.save_offsets()
        return Lab(self.opened.reopen(), self.in_use.now, self.saved)

    def crash(self, survives: Survives = "everything", seed: int = 0) -> "Lab":
        """Only saved offsets are known."""
        return Lab(self.opened.crash(survives, seed), self.in_use.now, self.saved)

    # using it

    def draft(self, body: bytes = b"body", topic: str = "T", queue_id: int = 1, **properties: str) -> Draft:
        return Draft(
            topic=topic,
            queue_id=queue_id,
            body=body,
            properties={
                "TRAN_MSG": "true",
                "PGROUP": GROUP,
                "UNIQ_KEY": f"KEY-{body.decode('utf-8', 'replace')}",
                **properties,
            },
            born_ms=self.clock.now_ms(),
            born_host=HOST,
            sys_flag=4,
        )

    def send(self, body: bytes = b"body", **properties: str) -> StoredPosition:
        """A message in a transaction; where its half message is."""
        return self.appender.append(as_half(self.draft(body, "T", 1, **properties)))

    def end(
        self,
        place: StoredPosition,
        state: int = COMMIT,
        *,
        group: str = GROUP,
        queue_offset: int | None = None,
        check: bool = False,
        key: str = "",
    ) -> None:
        """The decision of the producer of the half message at `place`."""
        self.transactions.decisions.end(
            EndTransaction(
                producer_group=group,
                tran_state_table_offset=place.queue_offset if queue_offset is None else queue_offset,
                commit_log_offset=place.log_offset,
                commit_or_rollback=int(state),
                msg_id=key,
                from_transaction_check=check,
            )
        )

    def check(self, after_ms: int = 6_000) -> list[StoredPosition]:
        """Let time pass and check; returns the offsets of the copies in the check-backs."""
        self.clock.advance_ms(after_ms)
        run(self.transactions.checks.run())
        self.opened.run_workers()
        return [
            StoredPosition(0, header.tran_state_table_offset, header.commit_log_offset)
            for header, _ in self.producer.take()
        ]

    def message(self, place: StoredPosition) -> StoredMessage:
        found = self.store.message(place.log_offset)
        assert found is not None
        return found

    def damage(self, place: StoredPosition) -> None:
        """Change a byte of the message's body on the disk."""
        raw = self.store.record(place.log_offset)
        assert raw is not None
        at = raw.index(self.message(place).body)
        with self.opened.disk.open(ROOT / "commitlog" / f"{0:020d}") as file:
            file.write_at(place.log_offset + at, b"?")

    def messages(self, topic: str = "T", queue_id: int = 1) -> list[StoredMessage]:
        found: list[StoredMessage] = []
        offset = 0
        while offset < self.store.max_offset(topic, queue_id):
            result = self.store.read(topic, queue_id, offset, 32)
            found += decode_records(result.body())
            offset = result.next_offset
        return found

    def delivered(self) -> list[bytes]:
        """Bodies of the committed messages."""
        return [message.body for message in self.messages()]

    def with_transaction(self, **changes: int) -> None:
        now = self.in_use.now
        self.in_use.now = msgspec.structs.replace(now, transaction=msgspec.structs.replace(now.transaction, **changes))
