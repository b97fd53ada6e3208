"""The access table: nothing is served that no rule could be made for, and no rule is made for what is not served."""

import pytest
from tests.broker.running import in_virtual_time, running

from pocketmq.broker.access import ACCESS
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.model.access import Action, Resource
from pocketmq.protocol.api import API
from pocketmq.protocol.command import Command


@in_virtual_time
async def test_every_request_that_is_served_has_a_row_and_every_row_is_served() -> None:
    async with running() as broker:
        by_handlers = set(broker.parts.dispatcher._handlers)
        hot = (broker.turns._stage.keys() | broker.turns._serve.keys()) - {Command}
        by_turns = {int(head.code) for head in hot}

    assert by_handlers | by_turns == set(map(int, ACCESS))
    assert by_handlers & by_turns == {RequestCode.HEART_BEAT}


@pytest.mark.parametrize("code", sorted(ACCESS), ids=lambda code: code.name)
def test_a_row_names_a_field_that_its_request_has(code: RequestCode) -> None:
    row = ACCESS[code]
    fields = API[code].request.__struct_fields__

    assert row.named_by is None or row.named_by in fields


def test_what_clients_do_with_topics_and_groups_is_told_apart() -> None:
    publishing = {code for code, row in ACCESS.items() if row.action is Action.PUB}
    subscribing = {code for code, row in ACCESS.items() if row.action is Action.SUB}

    assert {RequestCode.SEND_MESSAGE, RequestCode.SEND_BATCH_MESSAGE, RequestCode.END_TRANSACTION} <= publishing
    assert {RequestCode.PULL_MESSAGE, RequestCode.LOCK_BATCH_MQ, RequestCode.HEART_BEAT} <= subscribing
    assert all(ACCESS[code].resource is Resource.TOPIC for code in publishing)
    assert all(ACCESS[code].resource is Resource.GROUP for code in subscribing)


@pytest.mark.parametrize("binary", [False, True])
@in_virtual_time
async def test_a_code_that_nobody_serves_is_answered_as_not_supported(binary: bool) -> None:
    async with running() as broker:
        client = await broker.connect()

        answer = await client.ask(9999, binary=binary)

        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert answer.remark == " request type 9999 not supported"
