"""Calls to name servers: the client uses one until it fails, then the next.

    name_servers= ── else NAMESRV_ADDR ── else ROCKETMQ_NAMESRV_ADDR ── else rocketmq.namesrv.addr ──► "a:9876;b:9876"

All name servers have the same data, because every broker registers with each of them. So any response is final, also an error.
Only a timeout or a lost connection leads to the next name server.
"""

import random
from collections.abc import Mapping, Sequence

from pocketmq.client.cluster.rpc import RpcClient
from pocketmq.codes import RequestCode
from pocketmq.errors import (
    BodyError,
    CallTimedOut,
    ConnectFailed,
    ConnectionLost,
    InvalidSetting,
    NetworkError,
    RequestNotSupported,
)
from pocketmq.net import Address, CloseReason
from pocketmq.protocol.api.administration import ForNamespace, GetRoute, KvConfigReply, KvKey
from pocketmq.protocol.bodies.topics import ClusterInfo, KVTable, TopicList, TopicRouteData
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import Fields

DEFAULT_PORT = 9876
VARIABLES = ("NAMESRV_ADDR", "ROCKETMQ_NAMESRV_ADDR", "rocketmq.namesrv.addr")
"""Environment variables with addresses; the first one that is set counts."""


def parse_name_servers(value: str | Sequence[str] | None, environ: Mapping[str, str]) -> tuple[Address, ...]:
    """The addresses, without duplicates, in the given order; InvalidSetting when there is none."""
    if value is None:
        value = next((environ[name] for name in VARIABLES if environ.get(name)), "")
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise InvalidSetting(f"option name_servers = {value!r} must be a text or a list of texts, such as 'host:9876'")
    words = [word.strip() for text in texts for word in text.replace(",", ";").split(";")]
    addresses = tuple(dict.fromkeys(Address.parse(word, default_port=DEFAULT_PORT) for word in words if word))
    if not addresses:
        raise InvalidSetting(
            "no name server address: pass name_servers='host:9876' (separate several with ';'), "
            f"or set the environment variable {VARIABLES[0]}"
        )
    return addresses


_NAME_SERVER_CODES = (
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
)
"""Requests that every name server supports."""


class NameServers:
    """The name servers of one cluster."""

    def __init__(
        self, addresses: tuple[Address, ...], rpc: RpcClient, dice: random.Random, *, timeout_s: float, is_plain: bool
    ) -> None:
        self.addresses = addresses
        self._rpc = rpc
        self._timeout_s = timeout_s
        self._is_plain = is_plain
        """Whether this client does not use TLS."""
        self._has_answered = False
        self._current = dice.randrange(len(addresses))

    def __str__(self) -> str:
        return ";".join(map(str, self.addresses))

    @property
    def current(self) -> Address:
        """The name server that gets the next request."""
        return self.addresses[self._current]

    async def route(self, topic: str) -> TopicRouteData:
        """The route of `topic`; TopicNotFound when no broker has it."""
        answer = await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRoute(topic))
        if not answer.body:
            raise BodyError(f"{self.current}: the response with the route of topic {topic} has no body")
        return TopicRouteData.decode(answer.body)

    async def cluster_info(self) -> ClusterInfo:
        """All brokers."""
        return ClusterInfo.decode((await self.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body)

    async def topics(self) -> Sequence[str]:
        """The topics of all brokers."""
        return TopicList.decode((await self.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)).body).topic_list

    async def key_values(self, namespace: str) -> dict[str, str]:
        """A namespace of the key-value configuration; NotFound when it is empty."""
        answer = await self.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, ForNamespace(namespace))
        return dict(KVTable.decode(answer.body).table)

    async def value(self, namespace: str, key: str) -> str | None:
        """One value of the key-value configuration; NotFound without one."""
        return KvConfigReply.decode((await self.ask(RequestCode.GET_KV_CONFIG, KvKey(namespace, key))).ext).value

    async def ask(self, code: RequestCode, header: Fields | None = None, body: bytes = b"") -> Command:
        """The response of one name server. NetworkError when none answers; InvalidSetting when another server answers instead."""
        failures: list[NetworkError] = []
        wrong: InvalidSetting | None = None
        for _ in self.addresses:
            address = self.current
            try:
                answer = await self._rpc.ask(address, code, header, body, timeout_s=self._timeout_s)
                self._has_answered = True
                return answer
            except RequestNotSupported:
                if code not in _NAME_SERVER_CODES:
                    raise
                wrong = wrong or InvalidSetting(_not_a_name_server(address, code))
            except NetworkError as error:
                failures.append(error)
            self._current = (self._current + 1) % len(self.addresses)
        if wrong is not None:
            raise wrong
        kinds = {type(error) for error in failures}
        kind = kinds.pop() if kinds in ({CallTimedOut}, {ConnectFailed}) else NetworkError
        hint = ""
        if self._is_plain and not self._has_answered and any(map(_was_closed_by_peer, failures)):
            hint = "; a server that requires TLS closes the connection like this: set tls=True or client_context(…), or --tls"
        raise kind(f"no name server answered: {'; '.join(map(str, failures))}{hint}")


def _was_closed_by_peer(error: NetworkError) -> bool:
    return isinstance(error, ConnectionLost) and str(error).endswith(CloseReason.PEER.value)


def _not_a_name_server(address: Address, code: RequestCode) -> str:
    return (
        f"{address} is not a name server: it does not support {code.name}. It looks like a broker; set name_servers to "
        f"the addresses of name servers, which listen on port {DEFAULT_PORT} by default"
    )
