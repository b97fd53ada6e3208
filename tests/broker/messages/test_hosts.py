"""Addresses of peers as records keep them."""

import pytest

from pocketmq.broker.messages import packed_host
from pocketmq.net.address import Address

PORT = b"\x00\x00\x2a\x9f"


@pytest.mark.parametrize(
    ("host", "ip"),
    [
        ("10.0.0.1", bytes((10, 0, 0, 1))),
        ("::ffff:10.0.0.1", bytes((10, 0, 0, 1))),
        ("::1", bytes(15) + b"\x01"),
        ("fe80::1%eth0", b"\xfe\x80" + bytes(13) + b"\x01"),
    ],
    ids=["IPv4", "IPv4 in IPv6", "IPv6", "IPv6 with a zone"],
)
def test_an_address_is_packed_as_four_or_sixteen_bytes_and_its_port(host: str, ip: bytes) -> None:
    assert packed_host(Address(host, 10911)) == ip + PORT


@pytest.mark.parametrize("host", ["", "broker.example", "10.0.0", "not:an:address"])
def test_an_invalid_address_becomes_zeros(host: str) -> None:
    assert packed_host(Address(host, 10911)) == bytes(8)
