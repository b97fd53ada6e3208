"""Requests about brokers over a connection: registration in every form, liveness, clusters, write permission."""

import asyncio
import zlib

import pytest
from tests.nameserver.talk import (
    CLUSTER,
    MASTER,
    SLAVE,
    ask,
    broker_names,
    connected,
    done,
    register_command,
    route,
    started,
    table,
)

from pocketmq.codes import Perm, RequestCode, ResponseCode, Version
from pocketmq.nameserver.route_tables import RouteLimits
from pocketmq.nameserver.settings import NameServerSettings
from pocketmq.net.peer import Peer
from pocketmq.protocol.api.administration import (
    BrokerHeartbeat,
    ForBroker,
    ForBrokerName,
    GetBrokerMemberGroup,
    PutKvConfig,
)
from pocketmq.protocol.bodies.registration import write_registration
from pocketmq.protocol.bodies.topics import (
    BrokerData,
    BrokerMemberGroup,
    BrokerMembers,
    ClusterInfo,
    DataVersion,
    TopicTable,
)
from pocketmq.protocol.command import Command
from pocketmq.testing import FakeClock, MemoryNetwork, run


def with_crc(command: Command, crc: int) -> Command:
    command.ext = {**(command.ext or {}), "bodyCrc32": str(crc)}
    return command


def in_form(form: str) -> Command:
    """One registration of topics A and B, as brokers of several releases send it."""
    command = register_command()
    body = table("A", "B")
    if form == "packed":
        command.ext = {**(command.ext or {}), "compressed": "true"}
        command.body = write_registration(body, compressed=True)
    elif form == "packed by 4.9":
        command.ext = {**(command.ext or {}), "compressed": "true"}
        command.version = Version.V4_9_7
        command.body = write_registration(body, compressed=True, version=Version.V4_9_7)
    elif form == "before 3.0.11":
        command.version = 36
        command.body = TopicTable(body.topics.data_version, body.topics.topic_config_table).encode()
    else:
        command.body = write_registration(body)
    return command


@pytest.mark.parametrize("form", ["plain", "packed", "packed by 4.9", "before 3.0.11"])
def test_a_registration_is_accepted_in_every_form(form: str) -> None:
    async def main() -> None:
        async with started() as (_, peer):
            answer = await done(peer, in_form(form))

            assert answer.ext == {}
            assert answer.body == b""
            assert await route(peer, "A") is not None

    run(main())


@pytest.mark.parametrize(("shift", "remark"), [(0, None), (1, "crc32 not match")])
def test_a_registration_with_a_checksum_is_checked(shift: int, remark: str | None) -> None:
    async def main() -> None:
        async with started() as (_, peer):
            command = register_command("A", "B")

            answer = await peer.call(with_crc(command, (zlib.crc32(command.body) & 0x7FFFFFFF) + shift))

            assert answer.code == (ResponseCode.SYSTEM_ERROR if remark else ResponseCode.SUCCESS)
            assert answer.remark == remark

    run(main())


def test_a_checksum_of_0_is_not_checked() -> None:
    async def main() -> None:
        async with started() as (_, peer):
            await done(peer, with_crc(register_command("A", "B"), 0))

    run(main())


def test_a_first_registration_of_a_single_topic_is_refused_in_rocketmqs_words() -> None:
    async def main() -> None:
        async with started() as (_, peer):
            refused = await peer.call(register_command("Only"))
            await done(peer, register_command("A", "B"))
            await done(peer, register_command("Only", counter=2))

            assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_ERROR, "register broker failed")
            assert await route(peer, "Only") is not None

    run(main())


@pytest.mark.parametrize("body", [b"{", b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"A":{}}}}', b"\x00"])
def test_an_invalid_body_gets_an_error_with_the_problem(body: bytes) -> None:
    async def main() -> None:
        async with started() as (_, peer):
            command = register_command()
            command.body = body

            answer = await peer.call(command)

            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "RegisterBrokerBody" in (answer.remark or "")
            assert await broker_names(peer) == set()

    run(main())


def test_a_registration_with_too_many_topics_gets_the_number_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with started(NameServerSettings(limits=RouteLimits(max_topics=2))) as (_, peer):
            answers = [await peer.call(register_command("A", "B", "C")) for _ in range(3)]

            assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
            assert {(answer.ext or {})["topicsRejected"] for answer in answers} == {"1"}
            assert "there are 2 topics, the limit of this name server (maxTopics)" in (answers[0].remark or "")
            assert await broker_names(peer) == {"broker-a"}

    run(main())
    (told,) = [record.message for record in caplog.records]
    assert told.startswith(f"'broker-a' at '{MASTER}': 1 topics have no route, because there are 2 topics")


def test_a_slave_gets_its_master_and_its_replication_address() -> None:
    async def main() -> None:
        async with started() as (_, peer):
            await done(peer, register_command("A", "B"))

            answer = await done(peer, register_command(number=1, address=SLAVE))

            assert answer.ext == {"masterAddr": MASTER, "haServerAddr": MASTER + "-ha"}

    run(main())


@pytest.mark.parametrize(
    ("returned", "body"), [(True, b'{"table":{"Orders":"broker-a:4"}}'), (False, b"")], ids=["returned", "switched off"]
)
def test_a_broker_gets_the_order_config(returned: bool, body: bytes) -> None:
    async def main() -> None:
        async with started(NameServerSettings(return_order_topic_config_to_broker=returned)) as (_, peer):
            before = await done(peer, register_command("A", "B"))
            await ask(peer, RequestCode.PUT_KV_CONFIG, PutKvConfig("ORDER_TOPIC_CONFIG", "Orders", "broker-a:4"))

            after = await done(peer, register_command("A", "B"))

            assert before.body == b""
            assert after.body == body

    run(main())


def test_a_registration_of_4_9_is_one_way_and_never_answered() -> None:
    async def main() -> None:
        async with started() as (_, peer):
            peer.oneway(register_command("A", "B"))
            await asyncio.sleep(1)

            assert await broker_names(peer) == {"broker-a"}
            assert peer.unmatched == 0

    run(main())


def test_a_new_broker_and_an_ignored_rival_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with started() as (_, peer):
            newer = register_command()
            newer.body = write_registration(table("A", "B", state=5))
            await done(peer, newer)
            await done(peer, newer)

            ignored = await done(peer, register_command("A", "B", address=SLAVE))
            await done(peer, register_command("A", "B", address=SLAVE))

            assert ignored.ext == {}
            members = await ask(peer, RequestCode.GET_BROKER_MEMBER_GROUP, GetBrokerMemberGroup(CLUSTER, "broker-a"))
            assert BrokerMemberGroup.decode(members.body).broker_member_group == BrokerMembers(
                CLUSTER, "broker-a", {0: MASTER}
            )

    caplog.set_level("INFO", "pocketmq.nameserver")
    run(main())
    told = [record.message for record in caplog.records if record.message.startswith("Registered")]
    assert told == [f"Registered broker broker-a 0 at {MASTER} of {CLUSTER}, connected from 127.0.0.1:49152"]
    assert [record.message for record in caplog.records if "newer state" in record.message] == [
        f"'broker-a' at '{SLAVE}' is ignored: broker broker-a 0 at {MASTER} of {CLUSTER} has a newer state"
    ]


def test_an_unregistered_broker_is_removed_at_once() -> None:
    async def main() -> None:
        async with started() as (_, peer):
            await done(peer, register_command("A", "B"))

            answer = await ask(peer, RequestCode.UNREGISTER_BROKER, ForBroker("broker-a", MASTER, CLUSTER, 0))

            assert (answer.code, answer.body) == (ResponseCode.SUCCESS, b"")
            assert await broker_names(peer) == set()
            assert await route(peer, "A") is None

    run(main())


def test_an_unknown_broker_may_unregister() -> None:
    async def main() -> None:
        async with started() as (_, peer):
            answer = await ask(peer, RequestCode.UNREGISTER_BROKER, ForBroker("none", MASTER, CLUSTER, 0))

            assert answer.code == ResponseCode.SUCCESS

    run(main())


@pytest.mark.parametrize("sign", ["heartbeat", "data version", "nothing"])
def test_a_heartbeat_and_a_query_of_the_data_version_keep_a_broker_registered(sign: str) -> None:
    async def keep_alive(peer: Peer) -> None:
        if sign == "heartbeat":
            await ask(peer, RequestCode.BROKER_HEARTBEAT, BrokerHeartbeat(CLUSTER, MASTER, "broker-a"))
        elif sign == "data version":
            header = ForBroker("broker-a", MASTER, CLUSTER, 0)
            await ask(peer, RequestCode.QUERY_DATA_VERSION, header, DataVersion(9).encode())
        else:
            await ask(peer, RequestCode.GET_BROKER_CLUSTER_INFO)

    async def main() -> None:
        network = MemoryNetwork()
        clock = FakeClock(asyncio.get_running_loop())
        async with started(NameServerSettings(idle_s=1000), network=network, clock=clock) as (server, client):
            broker = await connected(network, server.address)
            await done(broker, register_command("A", "B"))
            for _ in range(4):
                await asyncio.sleep(60)
                await keep_alive(client)

            assert await broker_names(client) == (set() if sign == "nothing" else {"broker-a"})

    run(main())


@pytest.mark.parametrize(
    ("theirs", "changed"),
    [(DataVersion(1, 0, 1_001), "false"), (DataVersion(2, 0, 1_001), "true"), (DataVersion(), "true")],
)
def test_a_data_version_is_compared_with_ours(theirs: DataVersion, changed: str) -> None:
    async def main() -> None:
        async with started() as (_, peer):
            await done(peer, register_command("A", "B"))

            header = ForBroker("broker-a", MASTER, CLUSTER, 0)
            answer = await ask(peer, RequestCode.QUERY_DATA_VERSION, header, theirs.encode())

            assert answer.ext == {"changed": changed}
            assert answer.body == b'{"counter":1,"stateVersion":0,"timestamp":1001}'

    run(main())


def test_the_data_version_of_an_unknown_broker_counts_as_changed() -> None:
    async def main() -> None:
        async with started() as (_, peer):
            header = ForBroker("broker-a", MASTER, CLUSTER, 0)

            answer = await ask(peer, RequestCode.QUERY_DATA_VERSION, header, DataVersion().encode())

            assert (answer.code, answer.ext, answer.body) == (ResponseCode.SUCCESS, {"changed": "true"}, b"")

    run(main())


def test_the_cluster_and_the_members_of_a_broker_are_returned() -> None:
    async def main() -> None:
        async with started() as (_, peer):
            await done(peer, register_command("A", "B"))
            await done(peer, register_command(number=1, address=SLAVE))

            info = await ask(peer, RequestCode.GET_BROKER_CLUSTER_INFO)
            members = await ask(peer, RequestCode.GET_BROKER_MEMBER_GROUP, GetBrokerMemberGroup(CLUSTER, "broker-a"))

            addresses = {0: MASTER, 1: SLAVE}
            assert ClusterInfo.decode(info.body) == ClusterInfo(
                {"broker-a": BrokerData(CLUSTER, "broker-a", addresses)}, {CLUSTER: ("broker-a",)}
            )
            assert members.body == (
                b'{"brokerMemberGroup":{"brokerAddrs":{0:"%b",1:"%b"},"brokerName":"broker-a","cluster":"%b"}}'
                % (MASTER.encode(), SLAVE.encode(), CLUSTER.encode())
            )

    run(main())


def test_write_permission_is_wiped_and_restored() -> None:
    async def perm(peer: Peer) -> int:
        found = await route(peer, "A")
        assert found is not None
        return found.queue_datas[0].perm

    async def main() -> None:
        async with started() as (_, peer):
            await done(peer, register_command("A", "B"))

            wiped = await ask(peer, RequestCode.WIPE_WRITE_PERM_OF_BROKER, ForBrokerName("broker-a"))
            assert wiped.ext == {"wipeTopicCount": "2"}
            assert await perm(peer) == Perm.READ

            added = await ask(peer, RequestCode.ADD_WRITE_PERM_OF_BROKER, ForBrokerName("broker-a"))
            assert added.ext == {"addTopicCount": "2"}
            assert await perm(peer) == Perm.READ_WRITE

            nobody = await ask(peer, RequestCode.WIPE_WRITE_PERM_OF_BROKER, ForBrokerName("none"))
            assert (nobody.code, nobody.ext) == (ResponseCode.SUCCESS, {"wipeTopicCount": "0"})

    run(main())


def test_topics_missing_from_a_registration_are_removed_if_the_switch_is_on() -> None:
    async def main() -> None:
        async with started(NameServerSettings(delete_topic_with_broker_registration=True)) as (_, peer):
            await done(peer, register_command("A", "B"))

            await done(peer, register_command("A", "C", counter=2))

            assert await route(peer, "B") is None
            assert await route(peer, "C") is not None

    run(main())
