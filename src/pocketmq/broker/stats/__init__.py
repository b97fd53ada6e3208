"""Statistics of a broker.

    hot path ── tally.count += 1 ──► Tally ── every 10 s ──► history: last minute, hour and day of each row
                                       └─────── summed ─────► rates and totals of the whole broker

Modules in reading order:

    rows            counters and their history, for each topic or each group of a topic
    broker_stats    all statistics under RocketMQ's names; unread messages that retention deleted
    runtime_info    the table of texts that code 28 returns
"""

from pocketmq.broker.stats.broker_stats import SAMPLE_SECONDS, BrokerStats, UnreadDrops
from pocketmq.broker.stats.rows import Tally

__all__ = ["SAMPLE_SECONDS", "BrokerStats", "Tally", "UnreadDrops"]
