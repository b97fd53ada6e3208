"""Addresses of peers as records keep them."""

from pocketmq.errors import PocketMQError
from pocketmq.model.message_id import Host
from pocketmq.net.address import Address


def packed_host(address: Address) -> bytes:
    """An address as records keep it. One that is none, as of a peer that is gone already, becomes 0.0.0.0."""
    host = address.host.partition("%")[0].removeprefix("::ffff:")
    try:
        return Host.parse(f"[{host}]:{address.port}" if ":" in host else f"{host}:{address.port}").packed()
    except PocketMQError:
        return Host(bytes(4), 0).packed()
