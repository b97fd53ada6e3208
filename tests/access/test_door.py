"""Where a server may listen, and the error where it may not."""

from pathlib import Path

import pytest

from pocketmq.access.settings import check_listen_address
from pocketmq.errors import InvalidSetting
from pocketmq.nameserver.settings import NameServerSettings
from pocketmq.net.address import Address

OUTSIDE = Address("0.0.0.0", 10911)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_a_server_may_always_listen_on_loopback(host: str) -> None:
    check_listen_address(Address(host, 0), is_open=False, danger="may be used")


def test_other_addresses_need_accounts_or_an_explicit_option() -> None:
    NameServerSettings(host=OUTSIDE.host, accounts=Path("accounts.toml"))
    check_listen_address(OUTSIDE, is_open=True, danger="may be used")

    with pytest.raises(InvalidSetting, match=r"every client may be used\. Set accounts with --accounts"):
        check_listen_address(OUTSIDE, is_open=False, danger="may be used")
    with pytest.raises(InvalidSetting, match="every client may register brokers"):
        NameServerSettings(host=OUTSIDE.host)


@pytest.mark.parametrize("port", [-1, 65_536])
def test_an_invalid_port_is_refused(port: int) -> None:
    with pytest.raises(InvalidSetting, match=f"invalid port {port}"):
        check_listen_address(Address("127.0.0.1", port), is_open=False, danger="")
