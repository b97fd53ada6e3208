"""The way to the brokers: the addresses, the name servers behind them, the brokers that those tell of, and whether they answer.

address ──► name server ──► route ──► broker, at the address that it advertises
bad text    refused          none       an address that only its own machine or container knows
no name     silent           no master  a firewall
"""

import os

from pocketmq.client.admin.reach import BrokerPlace
from pocketmq.client.cluster.name_servers import DEFAULT_PORT, parse_name_servers
from pocketmq.codes import RequestCode
from pocketmq.doctor.report import Finding, broken, fine, not_looked_at
from pocketmq.doctor.visit import Visit
from pocketmq.errors import (
    CallTimedOut,
    ConnectFailed,
    ConnectionLost,
    InvalidSetting,
    NetworkError,
    NoPermission,
    PocketMQError,
    ProtocolError,
    RequestNotSupported,
)
from pocketmq.net.address import Address, resolved
from pocketmq.protocol.bodies.routes import ClusterInfo
from pocketmq.protocol.frames import HTTP_ANSWER
from pocketmq.protocol.java_json import read_body

WAITING_KEYS = {
    "sendThreadPoolQueueHeadWaitTimeMills": "sends",
    "pullThreadPoolQueueHeadWaitTimeMills": "pulls",
    "heartbeatThreadPoolQueueHeadWaitTimeMills": "heartbeats",
}
"""What a broker says of requests that wait for their turn."""


async def look_at_address(visit: Visit) -> Finding:
    """Whether the addresses are some, and their names known."""
    try:
        visit.addresses = parse_name_servers(visit.settings.name_servers, os.environ)
        _ = visit.reach  # joins now, so that settings that can never work are told here
    except InvalidSetting as error:
        return broken(str(error), "Give the name servers as HOST:PORT, several with ';' between them")
    unknown_names: list[str] = []
    for address in visit.addresses:
        try:
            await resolved(address)
        except ConnectFailed:
            unknown_names.append(address.host)
    if len(unknown_names) == len(visit.addresses):
        return broken(
            f"this machine knows no host called {unknown_names[0]}",
            "Correct the name, or make it known (DNS, /etc/hosts, the name of the container or service)",
        )
    notes = [f"this machine knows no host called {name}" for name in unknown_names]
    return fine(", ".join(map(str, visit.addresses)), *notes)


async def look_at_name_servers(visit: Visit) -> Finding:
    """Whether one answers at least: each is asked, for they share nothing."""

    async def ask(address: Address) -> ClusterInfo | None:
        try:
            answer = await visit.reach.instance.links.ask(address, RequestCode.GET_BROKER_CLUSTER_INFO)
        except NoPermission as error:
            visit.refusals.append(f"name server {address} says: {_told(error, address)}")
            return None
        return read_body(ClusterInfo, answer.body)

    found, failed = await visit.reach.gather_what_goes(visit.addresses, ask)
    visit.cluster_infos = {address: info for address, info in found.items() if info is not None}
    silent = [_silence(address, error) for address, error in failed.items()]
    if not found:
        return broken("; ".join(silent), _advice(visit, next(iter(failed.values()))))
    return fine(f"{', '.join(map(str, found))} {'answers' if len(found) == 1 else 'answer'}", *silent)


async def look_at_route(visit: Visit) -> Finding:
    """Whether brokers have registered, each with a master, and all name servers tell of the same."""
    if not visit.cluster_infos:
        return not_looked_at("this account may not ask")
    told = {address: set(info.broker_addr_table) for address, info in visit.cluster_infos.items()}
    everything = set().union(*told.values())
    if not everything:
        return broken(
            f"no broker is registered at {', '.join(map(str, told))}",
            "Start a broker that is told these name servers (namesrvAddr, `pocketmq broker --namesrv`), and look at its log",
        )
    visit.places = await visit.reach.places()
    leading = {place.name for place in visit.masters}
    if missing := sorted(everything - leading):
        return broken(
            f"broker {missing[0]} has no master that can be reached: nobody can write to it",
            "Start its master (brokerId=0), and see that it registers an address of the form host:port",
        )
    notes = [
        f"name server {address} does not know broker {name}, which others tell of"
        for address, names in told.items()
        for name in sorted(everything - names)
    ]
    return fine(f"{', '.join(sorted(leading))} registered", *notes)


async def look_at_brokers(visit: Visit) -> Finding:
    """Whether each answers at the address that it advertises; what it says about itself is kept."""
    if not visit.places:
        return not_looked_at("this account may not ask where they are")

    async def ask(place: BrokerPlace) -> None:
        try:
            visit.runtime[place] = await visit.reach.brokers.state.runtime_info(place.address)
            visit.runtime_ms[place] = visit.now_ms
        except NoPermission as error:
            visit.refusals.append(f"broker {place.name} says: {_told(error, place.address)}")

    _, failed = await visit.reach.gather_what_goes(visit.places, ask)
    for place, error in failed.items():
        return broken(
            f"broker {place.name} is registered as {place.address}, where it does not answer ({_told(error, place.address)})",
            _broker_advice(visit, place, error),
        )
    answering = ", ".join(f"{place.name} at {place.address}" for place in visit.places)
    return fine(answering, *waits(visit))


def waits(visit: Visit) -> list[str]:
    """Requests that wait long at a broker, which clients see as 'broker busy'."""
    found = []
    for place, table in visit.runtime.items():
        for key, what in WAITING_KEYS.items():
            text = table.get(key, "0")
            if text.isdigit() and int(text) > visit.settings.max_queue_wait_ms:
                found.append(f"{what} wait {int(text):,} ms at {place.name} for their turn: it is overloaded")
    return found


def _silence(address: Address, error: PocketMQError) -> str:
    """Why this is no name server that answers."""
    if isinstance(error, RequestNotSupported):
        return f"{address} answers and is no name server; it looks like a broker"
    if HTTP_ANSWER in str(error):
        return f"{address} answers and is no name server; it is the port of a web server, such as the console"
    return f"{address} does not answer ({_told(error, address)})"


def _advice(visit: Visit, error: PocketMQError) -> str:
    text = str(error)
    if isinstance(error, RequestNotSupported) or HTTP_ANSWER in text:
        return f"Give the address of a name server, which listens on port {DEFAULT_PORT} unless set otherwise"
    if "certificate" in text:
        return "Give the authority that signed its certificate (--tls-ca FILE)"
    if isinstance(error, ConnectionLost | ProtocolError) or "TLS" in text:
        tls = "without TLS" if visit.settings.tls else "with TLS (--tls)"
        return f"See that a name server listens there and no other program; if it does, try {tls}"
    if isinstance(error, CallTimedOut) or " within " in text:
        return "See that no firewall drops what is sent there, and that the address is right"
    return "Start the name server (`pocketmq serve`), or give its right address"


def _broker_advice(visit: Visit, place: BrokerPlace, error: PocketMQError) -> str:
    if place.address.is_loopback and not any(address.is_loopback for address in visit.addresses):
        return (
            "It advertises an address of its own machine only: set brokerIP1 to one that clients reach, and restart it"
        )
    if isinstance(error, NetworkError):
        return (
            "See that it runs; that no firewall is between; and that it advertises an address which is reached from here: "
            "brokerIP1 sets it, as a container's own address is known to nobody outside"
        )
    return "See what listens at this address: it does not speak RocketMQ's protocol"


def _told(error: PocketMQError, address: Address) -> str:
    """The cause alone: without the address, which is told already, and without what the client will do next."""
    first_line = str(error).partition("\n")[0].partition("; next try in")[0]
    return first_line.removeprefix(f"{address}: ").rstrip(".")
