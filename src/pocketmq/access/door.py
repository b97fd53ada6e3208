"""Where a server may listen: with nobody asked for an account, only where no other machine reaches it, unless that is meant."""

from typing import Final

from pocketmq.errors import InvalidSetting
from pocketmq.net.address import LARGEST_PORT, Address

OPEN_FLAG: Final = "--open-to-the-network-without-authentication"


def check_door(address: Address, *, has_accounts: bool, is_open: bool, danger: str) -> None:
    """InvalidSetting for an address that cannot be, or that would let strangers in; `danger` is what they could do then."""
    if not 0 <= address.port <= LARGEST_PORT:
        raise InvalidSetting(f"port {address.port} is none; it must be from 0 (any free one) to {LARGEST_PORT}")
    if address.is_loopback or has_accounts or is_open:
        return
    raise InvalidSetting(
        f"{address.host} can be reached by other machines, and there is no authentication: whoever reaches this {danger}. "
        "Name accounts with --accounts FILE (in code: accounts=…); or, if that is meant, say so with "
        f"{OPEN_FLAG} (in code: open_to_the_network_without_authentication=True)"
    )
