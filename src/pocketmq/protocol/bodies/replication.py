"""How a broker's replicas are doing."""

from pocketmq.protocol.bodies.body import Body
from pocketmq.protocol.header import Int32, Int64


class ReplicaConnection(Body, frozen=True):
    """A replica, as its master sees it."""

    addr: str | None = None
    slave_ack_offset: Int64 = 0
    diff: Int64 = 0
    in_sync: bool = False
    transferred_byte_in_second: Int64 = 0
    transfer_from_where: Int64 = 0


class ReplicaClient(Body, frozen=True):
    """A replica, as it sees itself."""

    master_addr: str | None = None
    transferred_byte_in_second: Int64 = 0
    max_offset: Int64 = 0
    last_read_timestamp: Int64 = 0
    last_write_timestamp: Int64 = 0
    master_flush_offset: Int64 = 0


class ReplicationStatus(Body, frozen=True):
    master: bool = False
    master_commit_log_max_offset: Int64 = 0
    in_sync_slave_nums: Int32 = 0
    ha_connection_info: tuple[ReplicaConnection, ...] = ()
    ha_client_runtime_info: ReplicaClient = ReplicaClient()


class Epoch(Body, frozen=True):
    """A stretch of the log that was written under one master."""

    epoch: Int32 = 0
    start_offset: Int64 = 0
    end_offset: Int64 = 2**63 - 1


class EpochHistory(Body, frozen=True):
    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: Int64 = 0
    epoch_list: tuple[Epoch, ...] = ()
    max_offset: Int64 = 0
