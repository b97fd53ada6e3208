"""Checks of the way to the brokers.

address       invalid, or an unknown host name
name server   connection refused, no answer, another program
route         no broker registered, or no master
broker        no answer at the address that it advertises: a container's own address, loopback, a firewall
"""

import os

from pocketmq.client.admin.targets import BrokerAddress
from pocketmq.client.cluster.name_servers import DEFAULT_PORT, parse_name_servers
from pocketmq.codes import RequestCode
from pocketmq.doctor.context import DoctorContext
from pocketmq.doctor.report import Finding, broken, ok, skipped
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
from pocketmq.net import Address, resolved
from pocketmq.protocol.bodies.topics import ClusterInfo
from pocketmq.protocol.frames import HTTP_ANSWER

WAITING_KEYS = {
    "sendThreadPoolQueueHeadWaitTimeMills": "sends",
    "pullThreadPoolQueueHeadWaitTimeMills": "pulls",
    "heartbeatThreadPoolQueueHeadWaitTimeMills": "heartbeats",
}
"""A broker's statistics of waiting requests, and their names here."""


async def check_address(context: DoctorContext) -> Finding:
    try:
        context.addresses = parse_name_servers(context.settings.name_servers, os.environ)
        _ = context.targets  # raises for settings that can never work
    except InvalidSetting as error:
        return broken(str(error), "Give the name servers as HOST:PORT, several with ';' between them")
    unknown_names: list[str] = []
    for address in context.addresses:
        try:
            await resolved(address)
        except ConnectFailed:
            unknown_names.append(address.host)
    if len(unknown_names) == len(context.addresses):
        return broken(
            f"unknown host name {unknown_names[0]}",
            "Correct the name, or add it to DNS or /etc/hosts; in containers, use the name of the container or service",
        )
    hints = [f"unknown host name {name}" for name in unknown_names]
    return ok(", ".join(map(str, context.addresses)), *hints)


async def check_name_servers(context: DoctorContext) -> Finding:
    """Whether at least one answers. Each gets a request, for name servers share no data."""

    async def ask(address: Address) -> set[str] | None:
        try:
            answer = await context.targets.instance.rpc.ask(address, RequestCode.GET_BROKER_CLUSTER_INFO)
        except NoPermission as error:
            context.refusals.append(f"name server {address} rejected the account: {_cause(error, address)}")
            return None
        return set(ClusterInfo.decode(answer.body).broker_addr_table)

    found, failed = await context.targets.gather_with_errors(context.addresses, ask)
    context.registered = {address: names for address, names in found.items() if names is not None}
    silent = [_problem(address, error) for address, error in failed.items()]
    if not found:
        return broken("; ".join(silent), _advice(context, next(iter(failed.values()))))
    return ok(f"{', '.join(map(str, found))} {'answers' if len(found) == 1 else 'answer'}", *silent)


async def check_route(context: DoctorContext) -> Finding:
    """Whether brokers are registered with a master, and all name servers know the same brokers."""
    if not context.registered:
        return skipped("the account has no permission")
    registered = context.registered
    everything = set().union(*registered.values())
    if not everything:
        return broken(
            f"no broker is registered at {', '.join(map(str, registered))}",
            "Start a broker with these name servers (namesrvAddr, `pocketmq broker --namesrv`); its log shows each registration",
        )
    context.brokers = await context.targets.all_brokers()
    with_master = {broker.name for broker in context.masters}
    if missing := sorted(everything - with_master):
        return broken(
            f"broker {missing[0]} has no master, so it accepts no messages",
            "Start its master (brokerId=0), and check that it registers an address of the form host:port",
        )
    hints = [
        f"name server {address} does not know broker {name}, which is registered at another name server"
        for address, names in registered.items()
        for name in sorted(everything - names)
    ]
    return ok(f"{', '.join(sorted(with_master))} registered", *hints)


async def check_brokers(context: DoctorContext) -> Finding:
    """Whether each answers at the address that it advertises. Later steps use its runtime information."""
    if not context.brokers:
        return skipped("the account has no permission to list brokers")

    async def ask(broker: BrokerAddress) -> None:
        try:
            context.runtime[broker] = await context.targets.brokers.state.runtime_info(broker.address)
            context.runtime_ms[broker] = context.now_ms
        except NoPermission as error:
            context.refusals.append(f"broker {broker.name} rejected the account: {_cause(error, broker.address)}")

    _, failed = await context.targets.gather_with_errors(context.brokers, ask)
    for broker, error in failed.items():
        return broken(
            f"broker {broker.name} does not answer at its registered address {broker.address} ({_cause(error, broker.address)})",
            _broker_advice(context, broker, error),
        )
    answering = ", ".join(f"{broker.name} at {broker.address}" for broker in context.brokers)
    return ok(answering, *waits(context))


def waits(context: DoctorContext) -> list[str]:
    """Brokers with requests that wait long; clients see 'broker busy'."""
    found = []
    for broker, table in context.runtime.items():
        for key, requests in WAITING_KEYS.items():
            text = table.get(key, "0")
            if text.isdigit() and int(text) > context.settings.max_queue_wait_ms:
                found.append(f"{requests} wait {int(text):,} ms at {broker.name}: the broker is overloaded")
    return found


def _problem(address: Address, error: PocketMQError) -> str:
    if isinstance(error, RequestNotSupported):
        return f"{address} is not a name server; it looks like a broker"
    if HTTP_ANSWER in str(error):
        return f"{address} is not a name server but a web server, such as the console"
    return f"{address} does not answer ({_cause(error, address)})"


def _advice(context: DoctorContext, error: PocketMQError) -> str:
    text = str(error)
    if isinstance(error, RequestNotSupported) or HTTP_ANSWER in text:
        return f"Give the address of a name server, which listens on port {DEFAULT_PORT} unless set otherwise"
    if "certificate" in text:
        return "Name the certificate authority (--tls-ca FILE)"
    if isinstance(error, ConnectionLost | ProtocolError) or "TLS" in text:
        tls = "without TLS" if context.settings.tls else "with TLS (--tls)"
        return f"Check that a name server listens there and not another program; if it does, try {tls}"
    if isinstance(error, CallTimedOut) or " within " in text:
        return "Check the address, and that no firewall drops the connection"
    return "Start the name server (`pocketmq serve`), or correct the address"


def _broker_advice(context: DoctorContext, broker: BrokerAddress, error: PocketMQError) -> str:
    if broker.address.is_loopback and not any(address.is_loopback for address in context.addresses):
        return "It advertises a loopback address: set brokerIP1 to an address that clients can connect to, and restart the broker"
    if isinstance(error, NetworkError):
        return (
            "Check that the broker runs, that no firewall blocks the connection, and that clients can connect to the address "
            "it advertises. If this is a container's internal address, set brokerIP1"
        )
    return "Check which program listens at this address: it does not speak RocketMQ's protocol"


def _cause(error: PocketMQError, address: Address) -> str:
    """The error text without the address and without the client's next attempt."""
    first_line = str(error).partition("\n")[0].partition("; next try in")[0]
    return first_line.removeprefix(f"{address}: ").rstrip(".")
