"""Statistics of a broker: what is counted where messages pass, and what is made of it every ten seconds.

hot path ── tally.count += 1 ──► Tally ── every 10 s ──► history: last minute, hour and day of each row
                                   └─────── summed ─────► rates and totals of the whole broker
"""

from pocketmq.broker.stats.broker_stats import SAMPLE_SECONDS, BrokerStats
from pocketmq.broker.stats.tally import Tally

__all__ = ["SAMPLE_SECONDS", "BrokerStats", "Tally"]
