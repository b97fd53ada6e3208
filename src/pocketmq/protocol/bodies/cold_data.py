"""How much each group reads that is no longer in memory."""

from pocketmq.protocol.bodies.body import EMPTY_MAP, Body
from pocketmq.protocol.header import Int64


class ColdReads(Body, frozen=True):
    """Bytes that a group read lately, and since when."""

    cold_acc: Int64 = 0
    last_cold_read_time_mills: Int64 = 0
    create_time_mills: Int64 = 0


class ColdReadLimits(Body, frozen=True):
    """What groups read, what each may read, and what all may read together; in bytes."""

    runtime_table: dict[str, ColdReads] = EMPTY_MAP
    config_table: dict[str, Int64] = EMPTY_MAP
    cg_cold_read_threshold: Int64 = 0
    global_cold_read_threshold: Int64 = 0
    global_acc: Int64 = 0
