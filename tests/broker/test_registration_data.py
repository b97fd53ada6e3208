"""Registrations: the fields of Apache's brokers, versions, and parts that fit into a frame."""

from zlib import crc32

import msgspec
import pytest
from tests.golden import captured, needs_golden

from pocketmq.broker.registration_data import MAX_TOPICS_PER_REQUEST, SINGLE_COST, RegistrationData
from pocketmq.broker.settings import BrokerSettings, SettingsInUse
from pocketmq.broker.topics import TopicTable
from pocketmq.codes import Perm, RequestCode
from pocketmq.nameserver.route_tables import Registration
from pocketmq.nameserver.routes import RouteTable
from pocketmq.net.address import Address
from pocketmq.protocol.api.administration import ForBroker, RegisterBroker
from pocketmq.protocol.bodies.registration import RegisterBrokerBody, read_registration
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.protocol.command import Command
from pocketmq.protocol.frames import FrameLimits
from pocketmq.protocol.java_json import read_json
from pocketmq.protocol.signing import Credentials, verify
from pocketmq.testing import FakeClock

NOW = 1_700_000_000_000
OWN = Address("10.0.0.9", 10911)
BROKER = BrokerSettings(broker_name="broker-b", cluster="C")


class Broker:
    def __init__(self, settings: BrokerSettings = BROKER, max_per_request: int = MAX_TOPICS_PER_REQUEST) -> None:
        self.clock = FakeClock()
        self.settings = SettingsInUse(settings)
        self.topics = TopicTable(settings.cluster, settings.broker_name, started_ms=NOW)
        self.data = RegistrationData(self.settings, self.topics, self.clock, max_per_request=max_per_request)

    def put(self, *topics: TopicConfig) -> None:
        self.topics.put(topics, self.clock.now_ms())

    def set_permission(self, permission: int) -> None:
        self.settings.now = msgspec.structs.replace(self.settings.now, permission=permission)


def header_of(command: Command) -> RegisterBroker:
    return RegisterBroker.decode(command.ext)


def body_of(command: Command) -> RegisterBrokerBody:
    return read_registration(command.body)


def tell(routes: RouteTable, *commands: Command) -> None:
    for command in commands:
        header = header_of(command)
        told = Registration(
            header.cluster_name, header.broker_name, header.broker_id, header.broker_addr, "", body_of(command), "line"
        )
        routes.register(told, 0.0)


def perms(routes: RouteTable, *topics: str) -> list[int]:
    found = [routes.route(topic) for topic in topics]
    return [route.queue_datas[0].perm for route in found if route]


def test_a_full_registration_has_all_topics_and_the_identity_of_the_broker() -> None:
    broker = Broker()
    broker.put(TopicConfig("T", 4, 8))

    (command,) = broker.data.register(OWN)

    assert command.code == RequestCode.REGISTER_BROKER
    assert header_of(command) == RegisterBroker(
        broker_name="broker-b",
        broker_addr="10.0.0.9:10911",
        cluster_name="C",
        ha_server_addr="10.0.0.9:10912",
        broker_id=0,
        enable_acting_master=False,
        compressed=False,
        body_crc32=crc32(command.body) & 0x7FFF_FFFF,
    )
    assert body_of(command).topics == broker.topics.registration()
    assert body_of(command).topics.topic_config_table["T"] == TopicConfig("T", 4, 8)


def test_a_single_topic_is_registered_with_the_version_of_all() -> None:
    broker = Broker()
    broker.put(TopicConfig("T"), TopicConfig("U"))

    (command,) = broker.data.register(OWN, [TopicConfig("T")])

    table = body_of(command).topics
    assert list(table.topic_config_table) == ["T"]
    assert table.data_version == broker.topics.version


def test_changed_topics_are_registered_one_by_one_and_accepted() -> None:
    broker, routes = Broker(), RouteTable()
    topics = [f"T{number}" for number in range(200)]
    broker.put(*map(TopicConfig, topics))
    tell(routes, *broker.data.register(OWN))
    changed = [TopicConfig(topic, perm=Perm.READ) for topic in ("T1", "T2", "T3")]
    broker.put(*changed)

    commands = broker.data.register(OWN, changed)
    tell(routes, *commands)

    assert [list(body_of(command).topics.topic_config_table) for command in commands] == [["T1"], ["T2"], ["T3"]]
    assert perms(routes, "T0", "T1", "T2", "T3", "T4") == [Perm.READ_WRITE, *[Perm.READ] * 3, Perm.READ_WRITE]
    assert body_of(commands[-1]).topics.data_version == broker.topics.version


def test_few_changes_are_registered_singly_and_many_with_all_topics() -> None:
    broker = Broker()
    broker.put(*(TopicConfig(f"T{number}") for number in range(320 - len(broker.topics))))

    assert broker.data.are_single_requests_cheaper(1)
    assert broker.data.are_single_requests_cheaper(320 // SINGLE_COST)
    assert not broker.data.are_single_requests_cheaper(320 // SINGLE_COST + 1)


def test_an_unregistration_names_the_registered_broker() -> None:
    command = Broker().data.unregister(OWN)

    assert command.code == RequestCode.UNREGISTER_BROKER
    assert ForBroker.decode(command.ext) == ForBroker("broker-b", "10.0.0.9:10911", "C", 0)


def test_with_credentials_every_request_is_signed() -> None:
    own = Credentials("broker", "the secret of the broker")
    broker = Broker(msgspec.structs.replace(BROKER, credentials=own))
    broker.put(TopicConfig("A"))

    said = [*broker.data.register(OWN), broker.data.unregister(OWN)]

    assert [command.code for command in said] == [RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER]
    for command in said:
        assert command.ext is not None
        assert command.ext["AccessKey"] == "broker"
        assert verify(command.ext, command.body, own.secret)
        assert own.secret not in str(command)


def test_without_credentials_no_request_is_signed() -> None:
    [command] = Broker().data.register(OWN)

    assert not {"AccessKey", "Signature"} & (command.ext or {}).keys()


def test_an_ipv6_address_is_registered_in_brackets() -> None:
    (command,) = Broker().data.register(Address("2001:db8::1", 10911))

    assert header_of(command).broker_addr == "[2001:db8::1]:10911"
    assert header_of(command).ha_server_addr == "[2001:db8::1]:10912"


def test_a_topic_has_no_more_permission_than_the_broker() -> None:
    broker = Broker(msgspec.structs.replace(BROKER, permission=Perm.READ))
    broker.put(TopicConfig("T"))

    (command,) = broker.data.register(OWN)

    assert {row.perm & Perm.WRITE for row in body_of(command).topics.topic_config_table.values()} == {0}


def test_a_changed_permission_reaches_a_name_server_that_knows_the_topics() -> None:
    broker, routes = Broker(), RouteTable()
    broker.put(TopicConfig("T"))
    tell(routes, *broker.data.register(OWN))
    broker.clock.advance_ms(5)

    broker.set_permission(Perm.READ)
    assert broker.data.permission_changed()
    assert not broker.data.permission_changed()
    tell(routes, *broker.data.register(OWN))
    assert perms(routes, "T") == [Perm.READ]

    routes.add_write_perm("broker-b")
    tell(routes, *broker.data.register(OWN))
    assert perms(routes, "T") == [Perm.READ_WRITE], "nothing changed since, so what an administrator did lasts"


def test_a_large_table_is_registered_in_parts_that_a_name_server_accepts() -> None:
    broker, routes = Broker(max_per_request=4), RouteTable()
    broker.put(*(TopicConfig(f"T{number}") for number in range(20)))
    names = sorted(row.topic_name for row in broker.topics)

    parts = broker.data.register(OWN)
    tell(routes, *parts)

    assert sorted(routes.topics.names()) == names
    sizes = [len(body_of(part).topics.topic_config_table) for part in parts]
    assert sum(sizes) == len(names)
    assert min(sizes) > 1
    assert max(sizes) <= 5
    assert body_of(parts[-1]).topics.data_version == broker.topics.version


def test_every_change_in_a_large_table_is_accepted() -> None:
    broker, routes = Broker(max_per_request=4), RouteTable()
    topics = [f"T{number}" for number in range(20)]
    broker.put(*map(TopicConfig, topics))
    tell(routes, *broker.data.register(OWN))
    tell(routes, *broker.data.register(OWN))

    broker.put(*(TopicConfig(topic, perm=Perm.READ) for topic in topics))
    tell(routes, *broker.data.register(OWN))

    assert perms(routes, *topics) == [Perm.READ] * 20


@pytest.mark.parametrize("count", [13, 14, 15, 16, 17, 25])
def test_no_part_has_a_single_topic(count: int) -> None:
    broker = Broker(max_per_request=12)
    broker.put(*(TopicConfig(f"T{number}") for number in range(count - len(broker.topics))))

    parts = broker.data.register(OWN)

    assert all(len(body_of(part).topics.topic_config_table) > 1 for part in parts)
    assert sum(len(body_of(part).topics.topic_config_table) for part in parts) == len(broker.topics)


def test_the_longest_names_fit_into_a_frame() -> None:
    row = TopicConfig(f"%RETRY%{'g' * 248}", 65_536, 65_536, topic_sys_flag=2**31 - 1, order=True)
    attributes = {"message.type": "TRANSACTION", "queue.type": "SimpleCQ", "cleanup.policy": "DELETE"}
    text = msgspec.json.encode({row.topic_name: msgspec.structs.replace(row, attributes=attributes)})

    assert len(text) * MAX_TOPICS_PER_REQUEST < FrameLimits().frame_bytes


def test_ordered_topics_are_read_from_the_answer() -> None:
    broker = Broker()
    broker.put(TopicConfig("T"), TopicConfig("U"))

    broker.data.apply_answer(Command(0, body=b'{"table":{"T":"broker-b:8","Foreign":"x:1"}}'), Address("ns", 1))
    broker.data.apply_answer(Command(0), Address("ns", 1))

    assert [broker.topics.is_order(topic) for topic in ("T", "U", "Foreign")] == [True, False, False]


@needs_golden
def test_a_registration_has_the_fields_of_apache() -> None:
    theirs = next(one.command for one in captured("wire/5.3.3/json/registration.jsonl") if one.command.code == 103)

    (ours,) = Broker(BrokerSettings()).data.register(Address("127.0.0.1", 19010))

    assert ours.ext is not None
    assert theirs.ext is not None
    computed = {"bodyCrc32"}
    assert {**ours.ext, **dict.fromkeys(computed, "")} == {**theirs.ext, **dict.fromkeys(computed, "")}
    our_body, their_body = read_json(ours.body), read_json(theirs.body)
    assert our_body.keys() == their_body.keys()
    our_table, their_table = our_body["topicConfigSerializeWrapper"], their_body["topicConfigSerializeWrapper"]
    assert our_table.keys() == their_table.keys()
    topic = "SCHEDULE_TOPIC_XXXX"
    assert our_table["topicConfigTable"][topic] == their_table["topicConfigTable"][topic]
    assert our_table["topicConfigTable"].keys() <= their_table["topicConfigTable"].keys()
