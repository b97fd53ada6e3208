"""Messages that came and went, by topic and group."""

from pocketmq.broker.delays import Delays
from pocketmq.broker.stats.broker_stats import BrokerStats
from pocketmq.broker.stats.rows import Key
from pocketmq.broker.stats.tally import Tally
from pocketmq.broker.timers.timers import Timers
from pocketmq.broker.topics import TopicTable
from pocketmq.broker.transactions.transactions import Transactions
from pocketmq.metrics.families import Family, Labels, counter, gauge, labels_of
from pocketmq.model.names import DLQ_PREFIX, is_retry
from pocketmq.store.message_store import MessageStore


class MessageMetrics:
    """Reads statistics and workers; changes nothing."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        stats: BrokerStats,
        delays: Delays,
        timers: Timers,
        transactions: Transactions,
    ) -> None:
        self._store = store
        self._topics = topics
        self._stats = stats
        self._delays = delays
        self._timers = timers
        self._transactions = transactions

    def families(self) -> list[Family]:
        return [*self._in_and_out(), *self._failed(), *self._later(), *self._undecided()]

    def _in_and_out(self) -> list[Family]:
        sent = [(self._topic_labels(key[0]), tally) for key, tally in self._stats.sent_rows()]
        pulled = [(self._group_labels(key), tally) for key, tally in self._stats.pulled_rows()]
        return [
            counter("rocketmq_messages_in", "Messages sent to a topic", _counts(sent)),
            counter("rocketmq_throughput_in", "Bytes of their bodies", _bytes(sent)),
            counter("rocketmq_messages_out", "Messages that a group pulled", _counts(pulled)),
            counter("rocketmq_throughput_out", "Bytes of pulled records", _bytes(pulled)),
        ]

    def _failed(self) -> list[Family]:
        back = {self._group_labels(key): tally.count for key, tally in self._stats.sent_back_rows()}
        dead = {
            labels_of(consumer_group=config.topic_name.removeprefix(DLQ_PREFIX)): self._store.max_offset(
                config.topic_name, 0
            )
            for config in self._topics
            if config.topic_name.startswith(DLQ_PREFIX)
        }
        return [
            counter("rocketmq_send_back_messages", "Messages that a group could not consume and sent back", back),
            counter("rocketmq_send_to_dlq_messages", "Dead letters of a group, ever", dead),
        ]

    def _later(self) -> list[Family]:
        waiting = {labels_of(level=str(level)): most - done for level, (done, most) in self._delays.progress().items()}
        undeliverable = {
            labels_of(kind="delayed"): self._delays.passed_over,
            labels_of(kind="timed"): self._timers.passed_over,
        }
        return [
            gauge("rocketmq_delayed_messages", "Messages that wait for their delay level", waiting),
            gauge("rocketmq_timing_messages", "Messages that wait for a time of their own", len(self._timers)),
            counter(
                "rocketmq_undeliverable_messages", "Messages that waited and could not be delivered", undeliverable
            ),
        ]

    def _undecided(self) -> list[Family]:
        decisions, checks = self._transactions.decisions, self._transactions.checks
        return [
            gauge("rocketmq_half_messages", "Transactions that are not decided", self._transactions.open_count),
            counter("rocketmq_commit_messages", "Transactions that were committed", decisions.committed),
            counter("rocketmq_rollback_messages", "Transactions that were rolled back", decisions.rolled_back),
            counter("rocketmq_transaction_checks", "Questions about undecided transactions", checks.asked),
            counter("rocketmq_transactions_given_up", "Transactions that nobody decided", checks.given_up),
        ]

    def _topic_labels(self, topic: str) -> Labels:
        return labels_of(topic=topic, is_system=_word(self._topics.is_system(topic)))

    def _group_labels(self, key: Key) -> Labels:
        topic, group = key
        return labels_of(
            topic=topic,
            consumer_group=group,
            is_retry=_word(is_retry(topic)),
            is_system=_word(self._topics.is_system(topic)),
        )


def _counts(rows: list[tuple[Labels, Tally]]) -> dict[Labels, float]:
    return {labels: tally.count for labels, tally in rows}


def _bytes(rows: list[tuple[Labels, Tally]]) -> dict[Labels, float]:
    return {labels: tally.bytes for labels, tally in rows}


def _word(truth: bool) -> str:
    return "true" if truth else "false"
