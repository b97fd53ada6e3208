"""From a command to its handler: unknown codes, codes without an access row, headers, answers now and later."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from pocketmq.access.accounts import Access, Action, Resource
from pocketmq.codes import HeaderEncoding, RequestCode, ResponseCode
from pocketmq.errors import HeaderError, NoPermission, RequestNotSupported
from pocketmq.net.peer import Peer
from pocketmq.net.server import Dispatcher, Handler, Reply, Request
from pocketmq.protocol.api.administration import KvConfigReply, KvKey
from pocketmq.protocol.command import Command

CODE = RequestCode.GET_KV_CONFIG
ACCESS = {CODE: Access(Resource.CLUSTER, Action.GET)}


def echo(request: Request[KvKey]) -> Reply:
    return Reply(KvConfigReply(f"{request.header.namespace}/{request.header.key}"), request.command.body)


async def echo_later(request: Request[KvKey]) -> Reply:
    await asyncio.sleep(0)
    return echo(request)


def command(code: int = CODE, **ext: str) -> Command:
    return Command(code, ext, b"body", opaque=7, encoding=HeaderEncoding.ROCKETMQ)


def served(handler: Handler, request: Command) -> Command:
    outcome = Dispatcher([{CODE: handler}], ACCESS).serve(Peer(), request)
    return asyncio.run(_awaited(outcome)) if isinstance(outcome, Coroutine) else outcome


async def _awaited(outcome: Coroutine[Any, Any, Command]) -> Command:
    return await outcome


@pytest.mark.parametrize("handler", [echo, echo_later])
def test_a_handler_gets_its_header_and_its_reply_is_sent(handler: Handler) -> None:
    answer = served(handler, command(namespace="ns", key="k"))

    assert answer.code == ResponseCode.SUCCESS
    assert answer.ext == {"value": "ns/k"}
    assert answer.body == b"body"
    assert answer.opaque == 7
    assert answer.is_response
    assert answer.encoding is HeaderEncoding.ROCKETMQ


def test_a_reply_without_a_header_has_no_ext_fields() -> None:
    assert served(lambda request: Reply(), command(namespace="ns", key="k")).ext is None


def test_a_code_without_a_handler_is_not_supported_in_rocketmqs_words() -> None:
    with pytest.raises(RequestNotSupported, match=" request type 9999 not supported"):
        served(echo, command(9999))


def test_a_handler_without_an_access_row_is_refused_before_anything_is_read() -> None:
    def never(request: Request[KvKey]) -> Reply:
        raise AssertionError("a handler without permission was called")

    with pytest.raises(NoPermission, match="request type 101 has no access rule"):
        Dispatcher([{CODE: never}], {}).serve(Peer(), command())


def test_a_missing_field_is_named() -> None:
    with pytest.raises(HeaderError, match="`key`"):
        served(echo, command(namespace="ns"))


def test_two_handlers_for_one_code_are_an_error() -> None:
    with pytest.raises(AssertionError, match="two handlers"):
        Dispatcher([{CODE: echo}, {CODE: echo}], ACCESS)


def test_the_access_check_runs_before_anything_else_of_a_request() -> None:
    looked_at: list[int] = []

    def check(peer: Peer, request: Command) -> None:
        looked_at.append(request.code)
        if request.body != b"body":
            raise NoPermission("not you")

    dispatcher = Dispatcher([{CODE: echo}], ACCESS, check=check)

    with pytest.raises(NoPermission, match="not you"):
        dispatcher.serve(Peer(), Command(9999))
    with pytest.raises(NoPermission, match="not you"):
        dispatcher.serve(Peer(), Command(CODE))
    answer = dispatcher.serve(Peer(), command(namespace="ns", key="k"))

    assert isinstance(answer, Command)
    assert answer.code == ResponseCode.SUCCESS
    assert looked_at == [9999, CODE, CODE]
