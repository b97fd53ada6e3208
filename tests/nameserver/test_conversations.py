"""Requests of brokers, clients and mqadmin to Apache's name servers, replayed with ours: the answers are the same.

Opaque, version, language and order are not compared. Where we answer differently on purpose, `DIFFERENCES` says why.
A broker's routine, its whole table every 30 s, was not recorded everywhere. The registered topics are taken from the
answers: its address, its DataVersion, and topics, which code 217 adds when they are first needed.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace
from tests.golden import GOLDEN, Captured, captured, needs_golden
from tests.nameserver.talk import connected

from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.nameserver.server import NameServer
from pocketmq.nameserver.settings import KEYS, REFUSED, NameServerSettings, write_keys
from pocketmq.net.peer import Peer
from pocketmq.protocol.bodies.properties_text import read_properties
from pocketmq.protocol.bodies.registration import RegisterBrokerBody
from pocketmq.protocol.bodies.topics import DataVersion, QueueData, TopicRouteData
from pocketmq.protocol.command import Command
from pocketmq.protocol.java_json import read_json, write_json
from pocketmq.testing import MemoryNetwork, run

LINKS = ("namesrv", "registration")
LISTS = (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, RequestCode.GET_TOPICS_BY_CLUSTER)
PARTLY_RECORDED = ("wire/5.3.3/json/pop.jsonl", "wire/5.3.3/json/raw.jsonl")
"""Conversations of 5.3.3 that ask for topics which were there before they began."""
SECOND_RUN = ("060-sendMessage.jsonl", "075-printMsg.jsonl")
"""Calls of mqadmin 5.3.3 that were recorded again, by themselves."""


class Answer(NamedTuple):
    """An answer without volatile values."""

    code: int
    remark: str | None
    ext: dict[str, str]
    body: Any
    is_strict: bool
    """Whether no key stands bare."""


class Exchange(NamedTuple):
    """A captured request, and the answer of Apache's name server; None for no answer."""

    name: str
    conn: str
    request: Command
    answer: Answer | None

    @property
    def release(self) -> str:
        return self.name.split("/")[1]


class Difference(NamedTuple):
    """An intended difference: `expected` computes our answer from theirs, None if it does not apply."""

    why: str
    expected: Callable[[Exchange, Answer], Answer | None]


def normal(code: int, command: Command) -> Answer:
    if code == RequestCode.GET_NAMESRV_CONFIG:
        body: Any = read_properties(command.body)
    else:
        body = _sorted(read_json(command.body)) if command.body else None
    return Answer(command.code, command.remark, command.ext or {}, body, b"{0:" not in command.body)


def _sorted(value: Any) -> Any:
    if isinstance(value, list):
        return sorted((_sorted(item) for item in value), key=repr)
    return {key: _sorted(item) for key, item in value.items()} if isinstance(value, dict) else value


def _new_faq(exchange: Exchange, theirs: Answer) -> Answer | None:
    old, new = "http://rocketmq.apache.org/docs/faq/", "https://rocketmq.apache.org/docs/bestPractice/06FAQ"
    remark = theirs.remark or ""
    return theirs._replace(remark=remark.replace(old, new)) if old in remark else None


def _acting_master(exchange: Exchange, theirs: Answer) -> Answer | None:
    brokers = _brokers(theirs.body)
    if exchange.release != "4.9.7" or not brokers:
        return None
    for broker in brokers:
        broker["enableActingMaster"] = False
    return theirs


def _brokers(body: Any) -> list[dict[str, Any]]:
    if not isinstance(body, dict):
        return []
    return body.get("brokerDatas") or list(body.get("brokerAddrTable", {}).values())


def _state_version(exchange: Exchange, theirs: Answer) -> Answer | None:
    if exchange.release != "4.9.7" or exchange.request.code != RequestCode.QUERY_DATA_VERSION:
        return None
    return theirs._replace(body=theirs.body | {"stateVersion": 0})


def _missing_field(exchange: Exchange, theirs: Answer) -> Answer | None:
    if exchange.request.code != RequestCode.GET_ROUTEINFO_BY_TOPIC or exchange.request.ext:
        return None
    return theirs._replace(code=ResponseCode.SYSTEM_ERROR, remark="GetRoute: Object missing required field `topic`")


def _own_keys(exchange: Exchange, theirs: Answer) -> Answer | None:
    if exchange.request.code != RequestCode.GET_NAMESRV_CONFIG:
        return None
    shared = {name: text for name, text in theirs.body.items() if name in KEYS.keys() - {"kvConfigPath", "listenPort"}}
    return theirs._replace(body=write_keys(NameServerSettings()) | shared)


def _which_key(exchange: Exchange, theirs: Answer) -> Answer | None:
    if theirs.remark != REFUSED:
        return None
    return theirs._replace(remark=f"{REFUSED} kvConfigPath can only be set when the name server starts")


DIFFERENCES = [
    Difference("the page that 4.9 names has moved; 5.3 names the new one", _new_faq),
    Difference("4.9 has no acting master; 5.3 always sends it", _acting_master),
    Difference("4.9 has no stateVersion; 5.3 always sends it", _state_version),
    Difference("a missing field is named, not taken for a topic called null", _missing_field),
    Difference("PocketMQ does not list settings that it does not have; the others have the same values", _own_keys),
    Difference("the error names the setting that cannot be changed", _which_key),
]


def exchanges(frames: Iterable[Captured]) -> list[Exchange]:
    """Requests in order, each with its answer. Answers to omitted requests are omitted."""
    asked: dict[tuple[str, str, int], tuple[Captured, Command]] = {}
    answers: dict[tuple[str, str, int], Answer] = {}
    for frame in frames:
        command = frame.command
        key = (frame.name.rpartition(":")[0], frame.conn, command.opaque)
        if not command.is_response:
            asked[key] = (frame, command)
        elif key in asked:
            answers[key] = normal(asked[key][1].code, command)
    return [
        Exchange(frame.name, f"{key[0]} {frame.conn}", command, answers.get(key))
        for key, (frame, command) in asked.items()
    ]


def conversations() -> dict[str, list[Exchange]]:
    """Every file with requests to a name server. The numbered calls of mqadmin were one run: they follow each other."""
    found: dict[str, list[Captured]] = {}
    for frame in captured() if GOLDEN.is_dir() else []:
        if frame.link in LINKS:
            path = frame.name.rpartition(":")[0]
            folder, _, file = path.rpartition("/")
            is_one_run = file[0].isdigit() and not ("5.3.3" in folder and file in SECOND_RUN)
            found.setdefault(folder if is_one_run else path, []).append(frame)
    return {name: exchanges(frames) for name, frames in found.items()}


class Replay:
    """One conversation against a name server of ours."""

    def __init__(self, talk: list[Exchange], network: MemoryNetwork, server: NameServer) -> None:
        self._talk = talk
        self._network = network
        self._server = server
        self._peers: dict[str, Peer] = {}
        self._known: set[str] = set()
        self._queues = dict(_queues_of_topics(talk))
        self.taught: list[str] = []
        self.wrong: list[str] = []
        self.compared = 0

    async def begin(self, first: Exchange) -> None:
        """The broker was there already, with the topics that every broker has."""
        await self._send(first._replace(request=_as_it_was(first.request, self._talk)))

    async def replay(self) -> None:
        for exchange in self._talk:
            await self._teach(exchange)
            ours = await self._send(exchange)
            if ours is not None and exchange.answer is not None:
                self.compared += 1
                wanted = expected(exchange)
                if ours != wanted:
                    self.wrong.append(f"{exchange.name} code {exchange.request.code}\n  {ours}\n  {wanted}")

    async def _send(self, exchange: Exchange) -> Answer | None:
        request = exchange.request
        if request.code == RequestCode.REGISTER_BROKER:
            self._known |= set(read_json(request.body)["topicConfigSerializeWrapper"]["topicConfigTable"])
        peer = await self._peer(exchange.conn)
        if request.is_oneway:
            peer.oneway(request)
            await asyncio.sleep(0.1)
            return None
        return normal(request.code, await peer.call(request))

    async def _peer(self, conn: str) -> Peer:
        if conn not in self._peers:
            self._peers[conn] = await connected(self._network, self._server.address)
        return self._peers[conn]

    async def _teach(self, exchange: Exchange) -> None:
        code, answer = exchange.request.code, exchange.answer
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return
        if code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            topic = (exchange.request.ext or {})["topic"]
            if topic not in self._known:
                await self._teach_topic(topic)
        elif code in LISTS:
            for topic in sorted(set(answer.body["topicList"]) - self._known):
                await self._teach_topic(topic)

    async def _teach_topic(self, topic: str) -> None:
        self.taught.append(topic)
        self._known.add(topic)
        body = TopicRouteData((self._queues.get(topic, QueueData("broker-a")),))
        peer = await self._peer("teacher")
        await peer.call(Command(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": topic}, body.encode()))


def _queues_of_topics(talk: list[Exchange]) -> Iterable[tuple[str, QueueData]]:
    """The first route of each topic; later ones may have changed."""
    for exchange in reversed(talk):
        if exchange.request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC and exchange.answer and exchange.answer.body:
            (queues,) = exchange.answer.body["queueDatas"]
            yield (exchange.request.ext or {})["topic"], QueueData.decode(write_json(queues))


def _as_it_was(request: Command, talk: list[Exchange]) -> Command:
    """A registration with the address and the DataVersion that this conversation knew."""
    body = RegisterBrokerBody.decode(request.body)
    ext = {name: text for name, text in (request.ext or {}).items() if name != "bodyCrc32"}
    for exchange in reversed(talk):
        answer = exchange.answer.body if exchange.answer else None
        for broker in _brokers(answer):
            ext["brokerAddr"] = broker["brokerAddrs"]["0"]
        if exchange.request.code == RequestCode.QUERY_DATA_VERSION:
            version = DataVersion.decode(write_json(answer))
            body = replace(body, topics=replace(body.topics, data_version=version))
    return Command(request.code, ext, body.encode(), version=request.version, encoding=request.encoding)


def expected(exchange: Exchange) -> Answer:
    assert exchange.answer is not None
    answer = exchange.answer
    for difference in DIFFERENCES:
        answer = difference.expected(exchange, answer) or answer
    return answer


TALKS = conversations()


@needs_golden
@pytest.mark.parametrize("name", TALKS)
def test_a_captured_conversation_gets_the_same_answers(name: str) -> None:
    async def main() -> Replay:
        network = MemoryNetwork()
        async with NameServer(network=network) as server:
            replay = Replay(TALKS[name], network, server)
            await replay.begin(TALKS[f"wire/{name.split('/')[1]}/json/registration.jsonl"][0])
            await replay.replay()
        return replay

    replay = run(main())

    assert replay.wrong == []
    assert replay.compared > 0
    if name.startswith("wire/5.3.3/") and name not in PARTLY_RECORDED:
        assert replay.taught == []


@needs_golden
@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda difference: difference.why)
def test_every_difference_that_is_listed_occurs(difference: Difference) -> None:
    talks = [exchange for talk in conversations().values() for exchange in talk if exchange.answer]

    assert any(difference.expected(exchange, exchange.answer) for exchange in talks if exchange.answer)


@needs_golden
def test_only_the_release_that_never_answers_an_unknown_code_is_excluded() -> None:
    silent = [
        (exchange.release, exchange.request.code) for talk in TALKS.values() for exchange in talk if not exchange.answer
    ]

    assert {one for one in silent if one[1] != RequestCode.REGISTER_BROKER} == {("4.9.7", 9999)}
