"""The gRPC server: RocketMQ 5's clients connect to it instead of to name servers and brokers.

    call ── metadata, signature ──► Caller ── handler ──► response with a status      gRPC's own status stays OK
                                                  └─ Refused, PocketMQError ──► the response with the status of the error

It is a client of the cluster: routes come from name servers, and each client has connections of its own to brokers. So it serves the
broker of this process, and any other cluster, in one way.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Final, Self

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from pocketmq.client.cluster.instance import Dependencies
from pocketmq.errors import ListenFailed, PocketMQError, WrongState
from pocketmq.files import Files
from pocketmq.metrics.families import Family, counter, gauge, labels_of, process_families, with_labels
from pocketmq.metrics.page import MetricsPage
from pocketmq.net import Address, Listener, Repeating, TcpNetwork, TlsMode, reachable
from pocketmq.net.tls import TLS_FIRST_BYTE
from pocketmq.proxy.callers import Caller, Callers
from pocketmq.proxy.leases import SCAN_S, LeaseCalls, Renewals
from pocketmq.proxy.messages import METHODS, SERVICE, Code, ReceiveMessageResponse, Status
from pocketmq.proxy.receiving import ReceiveCalls
from pocketmq.proxy.routes import Facts, RouteCalls
from pocketmq.proxy.sending import HalfMessages, SendCalls
from pocketmq.proxy.sessions import Sessions
from pocketmq.proxy.settings import ProxySettings
from pocketmq.proxy.statuses import Refused, status_of
from pocketmq.proxy.telemetry import BrokerRequests, TelemetryCalls

log = logging.getLogger("pocketmq.grpc")

LOOPBACK: Final = "127.0.0.1"
FIRST_BYTE_S: Final = 10.0
"""How long a connection may be silent before its first byte."""
FOLLOW_S: Final = 10.0
"""How often the file of accounts is looked at."""
_FAILED: Final = Status(code=Code.INTERNAL_SERVER_ERROR, message="the server failed; its log has the cause")

Unary = Callable[[Caller, Any], Awaitable[Any]]


class Calls:
    """The handlers of all calls, and what they share. They know nothing of gRPC's library."""

    def __init__(self, settings: ProxySettings, dependencies: Dependencies, address: Callable[[], Address]) -> None:
        clock = dependencies.clock
        halves = HalfMessages(settings.max_half_messages)
        facts = Facts(clock, settings.cached_s)
        self._requests = BrokerRequests(halves, settings)
        self.callers = Callers(settings, dependencies.files, clock)
        self.sessions = Sessions(settings, dependencies, self._requests.serve)
        self.renewals = Renewals(settings, clock)
        self.receiving = ReceiveCalls(self.sessions, facts, self.renewals, settings, clock)
        self.telemetry = TelemetryCalls(self.sessions, facts, self.renewals, settings)
        routes = RouteCalls(self.sessions, facts, address)
        leases = LeaseCalls(self.sessions, self.renewals, settings, clock)
        sends = SendCalls(self.sessions, facts, halves, settings, clock)
        self.unary: dict[str, Unary] = {
            "QueryRoute": routes.query_route,
            "QueryAssignment": routes.query_assignment,
            "Heartbeat": self.telemetry.heartbeat,
            "NotifyClientTermination": self.telemetry.terminate,
            "SendMessage": sends.send,
            "EndTransaction": sends.end_transaction,
            "RecallMessage": sends.recall,
            "AckMessage": leases.ack,
            "ChangeInvisibleDuration": leases.change,
            "ForwardMessageToDeadLetterQueue": leases.forward,
        }
        """By the names of their methods."""
        self._periodic = (
            Repeating("renewal of leases", SCAN_S, self.renewals.renew_due, log),
            Repeating("search for silent gRPC clients", SCAN_S, self.telemetry.end_silent, log),
            Repeating("reload of accounts", FOLLOW_S, self.callers.follow, log),
        )

    def start(self) -> None:
        for each in self._periodic:
            each.start()

    async def stop(self) -> None:
        """End all clients; their messages return."""
        for each in self._periodic:
            await each.stop()
        await self.receiving.close()
        await asyncio.gather(*map(self.telemetry.end, self.sessions))
        await self.sessions.close()

    def families(self) -> list[Family]:
        """The metrics of clients."""
        kinds = Counter(session.kind for session in self.sessions)
        return [
            gauge(
                "rocketmq_proxy_clients",
                "gRPC clients, by type",
                {labels_of(type=kind): n for kind, n in kinds.items()},
            ),
            gauge("rocketmq_proxy_waiting_receives", "Receives that are served now", self.receiving.receives),
            gauge("rocketmq_proxy_renewed_leases", "Leases that the server renews", len(self.renewals)),
            counter(
                "rocketmq_proxy_expired_clients", "Clients that ended without a termination", self.sessions.expired
            ),
            counter(
                "rocketmq_proxy_unsent_checks",
                "Check-backs for clients without a telemetry stream; brokers repeat them",
                self._requests.unsent_checks,
            ),
        ]


class _Outgoing(asyncio.Protocol):
    """The connection to gRPC's own port for one accepted connection."""

    def __init__(self, accepted: "_Accepted") -> None:
        self._accepted = accepted

    def data_received(self, data: bytes) -> None:
        self._accepted.transport.write(data)

    def pause_writing(self) -> None:
        self._accepted.transport.pause_reading()

    def resume_writing(self) -> None:
        self._accepted.transport.resume_reading()

    def connection_lost(self, reason: Exception | None) -> None:
        self._accepted.transport.close()


class _Accepted(asyncio.Protocol):
    """A connection that is TLS or plain text, as its first byte says."""

    def __init__(self, ports: "SharedPort") -> None:
        self._ports = ports
        self._first = b""
        self._connecting: asyncio.Task[None] | None = None
        self._outgoing: asyncio.Transport | None = None
        self.transport: asyncio.Transport = asyncio.Transport()  # until it is connected
        self._silence: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._silence = asyncio.get_running_loop().call_later(FIRST_BYTE_S, transport.close)

    def data_received(self, data: bytes) -> None:
        if self._outgoing is not None:
            self._outgoing.write(data)
            return
        self._first += data
        if self._silence is not None:
            self._silence.cancel()
        if self._connecting is None:
            self.transport.pause_reading()
            self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        loop, port = asyncio.get_running_loop(), self._ports.port_for(self._first)
        try:
            transport, _ = await loop.create_connection(lambda: _Outgoing(self), LOOPBACK, port)
        except OSError as error:
            log.warning("A gRPC connection was closed: %s", error)
            self.transport.close()
            return
        self._outgoing = transport
        local, peer = transport.get_extra_info("sockname"), self.transport.get_extra_info("peername")
        self._ports.peers[local[1]] = Address(peer[0], peer[1])
        transport.write(self._first)
        self._first = b""
        self.transport.resume_reading()

    def pause_writing(self) -> None:
        if self._outgoing is not None:
            self._outgoing.pause_reading()

    def resume_writing(self) -> None:
        if self._outgoing is not None:
            self._outgoing.resume_reading()

    def connection_lost(self, reason: Exception | None) -> None:
        if self._silence is not None:
            self._silence.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        if self._outgoing is not None:
            self._ports.peers.pop(self._outgoing.get_extra_info("sockname")[1], None)
            self._outgoing.close()


class SharedPort:
    """One port for TLS and plain text. gRPC's library cannot do that, so it has a port for each, on loopback."""

    def __init__(self, tls_port: int, plain_port: int) -> None:
        self._tls_port = tls_port
        self._plain_port = plain_port
        self.peers: dict[int, Address] = {}
        """The addresses of clients, by the port of the connection to gRPC's library."""

    def port_for(self, first: bytes) -> int:
        return self._tls_port if first[:1] == TLS_FIRST_BYTE else self._plain_port

    async def listen(self, address: Address) -> Listener:
        return await TcpNetwork().listen(lambda: _Accepted(self), address)


class Proxy:
    """Use `async with`; `address` has the actual port if the port of the settings is 0."""

    def __init__(self, settings: ProxySettings, dependencies: Dependencies | None = None) -> None:
        dependencies = dependencies or Dependencies()
        self.settings = settings
        self._files: Files = dependencies.files
        self._parts = Calls(settings, dependencies, lambda: self.address)
        authentication = self._parts.callers.authentication
        self._metrics_page = MetricsPage(
            settings.metrics,
            self._collect_all,
            network=dependencies.network,
            tls=settings.tls.load() if settings.metrics.enabled else None,
            admits=authentication.may_read_metrics if authentication else None,
        )
        self._server: grpc.aio.Server | None = None
        self._shared: SharedPort | None = None
        self._listener: Listener | None = None
        self._address: Address | None = None
        self.calls = 0
        """Calls since the start."""
        self.refused = 0
        """Calls whose status was not OK."""

    @property
    def address(self) -> Address:
        """The address for clients."""
        if self._address is None:
            raise WrongState("the gRPC server is not started: use `async with`")
        return reachable(self._address)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as undo:
            self._server = grpc.aio.server(options=_options(self.settings))
            undo.push_async_callback(self._server.stop, None)
            self._server.add_generic_rpc_handlers((self._handlers(),))
            self._address = self._listen(self._server)
            await self._server.start()
            if self._shared is not None:
                self._listener = await self._shared.listen(self.settings.address)
                undo.callback(self._listener.close)
                self._address = self._listener.address
            if self.settings.metrics.enabled:
                undo.push_async_callback(self._metrics_page.stop)
                await self._metrics_page.start()
            undo.pop_all()
        self._parts.start()
        log.info("gRPC clients can connect to %s", self._address)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._metrics_page.stop()
        if self._listener is not None:
            self._listener.close()
        if self._server is not None:
            await self._server.stop(self.settings.drain_s)
        await self._parts.stop()

    @property
    def metrics_address(self) -> Address | None:
        """The address of its own metrics page; None without one."""
        return self._metrics_page.address if self.settings.metrics.enabled else None

    async def _collect_all(self) -> list[Family]:
        own = labels_of(node_type="proxy", node_id=str(self.address))
        return [*await self.collect(), *with_labels(process_families(self._files), own)]

    async def collect(self) -> list[Family]:
        """The metric families, for the page of another server."""
        families = [
            *self._parts.families(),
            counter("rocketmq_proxy_calls", "Calls of gRPC clients", self.calls),
            counter("rocketmq_proxy_refused_calls", "Calls with another status than OK", self.refused),
        ]
        return with_labels(families, labels_of(node_type="proxy", node_id=str(self.address)))

    def _listen(self, server: grpc.aio.Server) -> Address:
        settings, mode = self.settings, self.settings.tls.in_use
        address = settings.address
        try:
            if mode is TlsMode.PERMISSIVE:
                inner = f"{LOOPBACK}:0"
                tls_port = server.add_secure_port(inner, self._certificate())
                self._shared = SharedPort(tls_port, server.add_insecure_port(inner))
                return address
            if mode is TlsMode.DISABLED:
                return Address(address.host, server.add_insecure_port(str(address)))
            return Address(address.host, server.add_secure_port(str(address), self._certificate()))
        except RuntimeError as error:
            raise ListenFailed(
                f"cannot listen on {address} for gRPC: {error}. Stop the program that listens there, or choose another port"
            ) from None

    def _certificate(self) -> grpc.ServerCredentials:
        tls = self.settings.tls
        assert tls.cert is not None
        certificate = self._files.read(tls.cert)
        key = certificate if tls.key is None else self._files.read(tls.key)
        authority = None if tls.client_ca is None else self._files.read(tls.client_ca)
        return grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=authority is not None)

    def _caller(self, context: Any) -> Caller:
        return self._parts.callers.of(context, {} if self._shared is None else self._shared.peers)

    def _handlers(self) -> grpc.GenericRpcHandler:
        handlers: dict[str, grpc.RpcMethodHandler] = {}
        for name, (request, response) in METHODS.items():
            codec = {"request_deserializer": _decoder(request), "response_serializer": response.SerializeToString}
            if name == "Telemetry":
                handlers[name] = grpc.stream_stream_rpc_method_handler(self._serve_telemetry, **codec)
            elif name == "ReceiveMessage":
                handlers[name] = grpc.unary_stream_rpc_method_handler(self._serve_receive, **codec)
            else:
                serve = self._serve_unary(name, self._parts.unary[name], response)
                handlers[name] = grpc.unary_unary_rpc_method_handler(serve, **codec)
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    def _serve_unary(self, name: str, handler: Unary, response: Any) -> Callable[[Any, Any], Awaitable[Any]]:
        async def serve(request: Any, context: Any) -> Any:
            self.calls += 1
            try:
                return await handler(self._caller(context), _valid(request))
            except (Refused, PocketMQError) as error:
                self.refused += 1
                return response(status=status_of(error))
            except Exception:
                log.exception("%s failed", name)
                return response(status=_FAILED)

        return serve

    async def _serve_receive(self, request: Any, context: Any) -> None:
        self.calls += 1
        try:
            await self._parts.receiving.receive(self._caller(context), _valid(request), context.write)
        except (Refused, PocketMQError) as error:
            self.refused += 1
            await context.write(ReceiveMessageResponse(status=status_of(error)))
        except grpc.aio.BaseError:
            log.info("A client ended a receive before it had all messages; they return")

    async def _serve_telemetry(self, requests: Any, context: Any) -> None:
        self.calls += 1

        async def read() -> Any:
            request = await context.read()
            return None if request is grpc.aio.EOF else _valid(request)

        try:
            caller = self._caller(context)
            await context.send_initial_metadata(())
            await self._parts.telemetry.telemetry(caller, read, context.write)
        except Refused as error:
            self.refused += 1
            is_of_client = 40_000 <= error.code < 50_000
            code = grpc.StatusCode.INVALID_ARGUMENT if is_of_client else grpc.StatusCode.INTERNAL
            await context.abort(code, str(error))
        except grpc.aio.BaseError:
            log.info("A client ended its telemetry stream before it had the answer to its settings")


def _decoder(kind: Any) -> Callable[[bytes], Any]:
    """Decodes requests. One that cannot be decoded becomes its error: gRPC's library would log a stack trace for each."""

    def decode(data: bytes) -> Any:
        try:
            return kind.FromString(data)
        except DecodeError as error:
            return error

    return decode


def _valid(request: Any) -> Any:
    if isinstance(request, DecodeError):
        raise Refused(Code.BAD_REQUEST, f"the request cannot be decoded: {request}")
    return request


def _options(settings: ProxySettings) -> list[tuple[str, int]]:
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", settings.max_request_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", settings.max_metadata_bytes),
        ("grpc.absolute_max_metadata_size", settings.max_metadata_bytes),
        ("grpc.max_concurrent_streams", settings.max_calls_per_connection),
        ("grpc.max_connection_idle_ms", settings.connection_idle_s * 1000),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", settings.min_ping_s * 1000),
        ("grpc.keepalive_permit_without_calls", 1),
    ]
