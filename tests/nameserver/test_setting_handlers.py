"""Requests about settings over a connection: changeable keys change, others are refused by name."""

import pytest
from tests.nameserver.talk import ask, started

from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.net.peer import Peer
from pocketmq.protocol.bodies.properties_text import read_properties
from pocketmq.protocol.command import Command
from pocketmq.testing import FaultyFiles, run


async def update(peer: Peer, text: str) -> Command:
    return await ask(peer, RequestCode.UPDATE_NAMESRV_CONFIG, body=text.encode())


async def told(peer: Peer) -> dict[str, str]:
    return read_properties((await ask(peer, RequestCode.GET_NAMESRV_CONFIG)).body)


def test_settings_are_returned_as_properties_with_the_configured_port() -> None:
    async def main() -> None:
        async with started() as (server, peer):
            settings = await told(peer)

            assert settings["listenPort"] == str(server.address.port)
            assert settings["bindAddress"] == "127.0.0.1"
            assert settings["orderMessageEnable"] == "false"

    run(main())


def test_a_switch_is_changed_and_takes_effect_at_once() -> None:
    async def main() -> None:
        async with started() as (_, peer):
            answer = await update(peer, "enableAllTopicList=false\n")
            refused = await ask(peer, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)

            assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
            assert (await told(peer))["enableAllTopicList"] == "false"
            assert refused.remark == "disable"

    run(main())


def test_an_empty_change_is_a_success_as_with_rocketmq() -> None:
    async def main() -> None:
        async with started() as (_, peer):
            assert (await update(peer, "")).code == ResponseCode.SUCCESS

    run(main())


@pytest.mark.parametrize(
    "text",
    [
        "kvConfigPath=/etc/cron.d/root\n",
        "configStorePath=/tmp/x\nproductEnvName=* * * * * root touch /tmp/x\n",
        "rocketmqHome=-c $@|sh . echo touch /tmp/x;\n",
        "bindAddress=0.0.0.0\n",
        "listenPort=1\n",
        "maxTopics=1\n",
        "orderMessageEnable=true\nkvConfigPath=/x\n",
        "\\u006bvConfigPath=/x\n",
        "unheardOf=1\n",
    ],
)
def test_other_keys_are_refused_by_name_and_no_file_is_changed(text: str) -> None:
    async def main() -> None:
        files = FaultyFiles()
        async with started(files=files) as (_, peer):
            before = await told(peer)

            answer = await update(peer, text)

            names = [name for name in read_properties(text.encode()) if name != "orderMessageEnable"]
            assert answer.code == ResponseCode.NO_PERMISSION
            assert (answer.remark or "").startswith(f"Can not update config in black list. {names[0]} ")
            assert await told(peer) == before
        assert files.position == 0

    run(main())


def test_an_impossible_value_is_reported() -> None:
    async def main() -> None:
        async with started() as (_, peer):
            answer = await update(peer, "orderMessageEnable=perhaps\n")

            assert answer.code == ResponseCode.INVALID_PARAMETER
            assert "orderMessageEnable=perhaps is not true or false" in (answer.remark or "")

    run(main())


def test_a_forbidden_change_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with started() as (_, peer):
            await update(peer, "kvConfigPath=/x\n")

    run(main())
    assert (
        "Rejected a change of settings by 127.0.0.1:49152: 'Can not update config in black list. kvConfigPath"
        in caplog.text
    )
