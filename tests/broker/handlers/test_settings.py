"""Requests about the settings of a broker over a connection: changeable keys change, others are refused by name."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.broker.states import state_over
from tests.golden import captured, needs_golden
from tests.store.open_store import OpenStore

from pocketmq.broker.access import ACCESS
from pocketmq.broker.handlers.administration import SettingHandlers
from pocketmq.broker.setting_keys import CONSTANTS, KEYS, write_keys
from pocketmq.broker.settings import BrokerSettings, SettingsInUse
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.net.address import Address
from pocketmq.net.peer import Peer
from pocketmq.net.server import Dispatcher, Server
from pocketmq.protocol.api.administration import BrokerConfigReply
from pocketmq.protocol.bodies.properties_text import read_properties
from pocketmq.protocol.bodies.topics import DataVersion
from pocketmq.protocol.command import Command
from pocketmq.testing import FakeClock, MemoryNetwork, run

BROKER = Address("10.0.0.9", 10911)


class Talk:
    """The connection of an administrator to a broker that has only settings."""

    def __init__(self, peer: Peer, settings: SettingsInUse, clock: FakeClock) -> None:
        self._peer = peer
        self.settings = settings
        self.clock = clock
        self.applied_permissions: list[int] = []

    async def update(self, text: str) -> Command:
        return await self._peer.call(Command(RequestCode.UPDATE_BROKER_CONFIG, {}, text.encode()))

    async def get(self) -> tuple[DataVersion, dict[str, str]]:
        answer = await self._peer.call(Command(RequestCode.GET_BROKER_CONFIG))
        assert answer.code == ResponseCode.SUCCESS
        header = BrokerConfigReply.decode(answer.ext)
        return DataVersion.decode(header.version.encode()), read_properties(answer.body)


@asynccontextmanager
async def talking() -> AsyncIterator[Talk]:
    network = MemoryNetwork()
    opened = OpenStore.small(clock=FakeClock(start_ms=1_000))
    state = state_over(opened)
    peer = Peer()
    talk = Talk(peer, state.settings, opened.clock)
    handlers = SettingHandlers(state, lambda now: talk.applied_permissions.append(now.permission))
    async with Server(BROKER, serve=Dispatcher([handlers.table()], ACCESS).serve, network=network):
        await network.connect(lambda: peer.connection, BROKER)
        yield talk
        peer.close()
        await peer.wait_lost()


def test_every_key_is_returned_with_its_value_and_a_version() -> None:
    async def main() -> None:
        async with talking() as talk:
            version, told = await talk.get()

            assert version == DataVersion(0, 0, 1_000)
            assert told == write_keys(BrokerSettings())
            assert told.keys() <= KEYS.keys() | CONSTANTS.keys()

    run(main())


@needs_golden
def test_the_version_has_the_form_of_the_captured_broker() -> None:
    [*_, real] = [frame for frame in captured("mqadmin/5.3.3/wire/*getBrokerConfig*.jsonl") if frame.answers == 26]

    version = DataVersion.decode(BrokerConfigReply.decode(real.command.ext).version.encode())

    assert (version.counter, version.state_version) == (0, 0)


def test_a_change_takes_effect_and_increases_the_version() -> None:
    async def main() -> None:
        async with talking() as talk:
            talk.clock.advance_ms(500)

            answer = await talk.update("longPollingEnable=false\nshortPollingTimeMills=77\n")

            version, told = await talk.get()
            assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
            assert version == DataVersion(1, 0, 1_500)
            assert (told["longPollingEnable"], told["shortPollingTimeMills"]) == ("false", "77")
            assert (talk.settings.now.long_polling, talk.settings.now.short_polling_ms) == (False, 77)
            assert talk.applied_permissions == [6]

    run(main())


def test_an_empty_change_succeeds_and_changes_nothing() -> None:
    async def main() -> None:
        async with talking() as talk:
            before = await talk.get()

            assert (await talk.update("")).code == ResponseCode.SUCCESS
            assert await talk.get() == before

    run(main())


def test_only_real_changes_are_applied() -> None:
    async def main() -> None:
        async with talking() as talk:
            await talk.update("brokerPermission=4\n")
            await talk.update("brokerPermission=4\n")

            assert talk.applied_permissions == [4]

    run(main())


@pytest.mark.parametrize(
    "text",
    [
        "rocketmqHome=-c $@|sh . echo touch /tmp/x;\nfilterServerNums=1\n",
        "filterServerNums=1\nrocketmqHome=x\n",
        "brokerConfigPath=/etc/cron.d/root\nbrokerName=* * * * * root touch /tmp/x\n",
        "storePathRootDir=/x\n",
        "storePathCommitLog=/x\n",
        "messageStorePlugIn=a.b.C\n",
        "bindAddress=0.0.0.0\n",
        "listenPort=1\n",
        "brokerIP1=10.6.6.6\n",
        "namesrvAddr=10.6.6.6:9876\n",
        "configBlackList=\n",
        "aclEnable=false\n",
        "mappedFileSizeCommitLog=4096\n",
        "longPollingEnable=false\nstorePathRootDir=/x\n",
        "\\u0072ocketmqHome=/x\n",
        "unheardOf=1\n",
    ],
)
def test_other_keys_are_refused_by_name_and_nothing_changes(text: str) -> None:
    async def main() -> None:
        async with talking() as talk:
            before = await talk.get()

            answer = await talk.update(text)

            names = [name for name in read_properties(text.encode()) if name != "longPollingEnable"]
            assert answer.code == ResponseCode.NO_PERMISSION
            assert (answer.remark or "").startswith(f"Can not update config in black list. {names[0]} ")
            assert await talk.get() == before
            assert talk.settings.now == BrokerSettings()

    run(main())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("longPollingEnable=perhaps\n", "longPollingEnable=perhaps is not true or false"),
        ("brokerPermission=9\n", "permission 9"),
        ("shortPollingTimeMills=0\n", "above 0"),
        ("timerMaxDelaySec=9223372036854775807\n", "max_delay_s = 9223372036854775807 must be at most 3153600000"),
        (f"longPollingEnable=false\nshortPollingTimeMills={10**400}\n", "is not a number up to 9223372036854775807"),
        ("longPollingEnable=false\nshortPollingTimeMills=x\n", "shortPollingTimeMills=x is not a whole number"),
    ],
)
def test_an_impossible_value_is_reported_and_nothing_changes(text: str, why: str) -> None:
    async def main() -> None:
        async with talking() as talk:
            answer = await talk.update(text)

            assert answer.code == ResponseCode.INVALID_PARAMETER
            assert why in (answer.remark or "")
            assert talk.settings.now == BrokerSettings()

    run(main())


def test_text_that_is_not_properties_is_an_error() -> None:
    async def main() -> None:
        async with talking() as talk:
            answer = await talk.update("a=\\u12")

            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "properties" in (answer.remark or "")

    run(main())


def test_changes_and_forbidden_attempts_are_logged_with_the_client(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with talking() as talk:
            await talk.update("traceOn=false\n")
            await talk.update("rocketmqHome=/x\n")

    caplog.set_level("INFO", "pocketmq.broker")
    run(main())
    assert "Changed setting traceOn to 'false'" in caplog.text
    assert "'Can not update config in black list. rocketmqHome" in caplog.text
