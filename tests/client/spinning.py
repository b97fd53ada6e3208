"""A listener in a real process computes without a pause; its client must stay a member and keep its queue.

python -m tests.client.spinning --seconds 60        a minute and some seconds

The broker removes clients without a heartbeat for 2.5 s, so a minute is 24 leases. The test queries the members all the time, and
the broker queries the client itself, which must answer while its listener computes.
"""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from rich.console import Console
from tests.client.processes import PATIENCE_S, Children, processes

from pocketmq import Admin
from pocketmq.broker.broker import Broker
from pocketmq.broker.settings import BrokerSettings
from pocketmq.nameserver.server import NameServer
from pocketmq.nameserver.settings import NameServerSettings
from pocketmq.net.portal import Portal
from pocketmq.store.settings import StoreSettings

LEASE_MS = 2_500


@contextmanager
def impatient_broker(folder: Path) -> Iterator[str]:
    """The name server of a broker that removes clients without a heartbeat for `LEASE_MS`."""
    running = AsyncExitStack()

    async def start() -> str:
        name_server = await running.enter_async_context(NameServer(NameServerSettings(port=0)))
        settings = BrokerSettings(
            port=0,
            name_servers=(name_server.address,),
            store=StoreSettings(folder=folder, log_file_bytes=4 << 20),
            client_expiry_ms=LEASE_MS,
            expiry_scan_ms=100,
        )
        await running.enter_async_context(Broker(settings))
        return str(name_server.address)

    with Portal("impatient") as portal:
        yield portal.run(start())
        portal.run(running.aclose())


def spin(children: Children, name_server: str, spin_s: float) -> int:
    """Let a listener compute for this time; returns how often its membership and its queue were checked."""
    with Admin(name_server, heartbeat_ms=1_000) as admin:
        admin.topics.create("Spin", queues=1)
        member = children.client("member", name_server, "spinners", "Spin", "--spin-s", spin_s)
        sender = children.client("sender", name_server, "Spin")
        children.until_ready(member, sender)
        client_id = member.said[0].removeprefix("ready ")

        sender.tell(1)
        children.until(lambda: "spins 0" in member.said, "the message")
        looks: list[float] = []

        def is_done() -> bool:
            assert [one.client_id for one in admin.groups.members("spinners")] == [client_id]
            owners = admin.groups.owners("spinners")
            assert not owners.silent
            assert [who for queue, who in owners.queues.items() if queue.topic == "Spin"] == [(client_id,)]
            looks.append(monotonic())
            return "0" in member.said

        children.until(is_done, "the end of the work", spin_s + PATIENCE_S)
        children.until(lambda: admin.offsets.lag("spinners").messages == 0, "the commit")

    assert looks[-1] - looks[0] > spin_s - LEASE_MS / 1000
    assert len(looks) > spin_s, "asked through the broker, the client answers while its listener computes"
    assert member.leave() == 0
    assert member.said[1:] == ["spins 0", "0"]
    return len(looks)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m tests.client.spinning", description="A listener that computes.")
    parser.add_argument("--seconds", type=float, default=60.0)
    seconds = parser.parse_args(arguments).seconds
    with (
        TemporaryDirectory(prefix="pocketmq-spinning-") as place,
        impatient_broker(Path(place) / "impatient") as name_server,
        processes(Path(place)) as children,
    ):
        looks = spin(children, name_server, seconds)
    Console(highlight=False).print(
        f"a listener computed for {seconds:g} s, {seconds * 1000 / LEASE_MS:g} leases; "
        f"looked {looks} times, its client was there and had its queue each time"
    )


if __name__ == "__main__":
    main()
