"""Checks of connections that the tests of the examination do not cover."""

from tests.client.real_cluster import real_cluster
from tests.doctor.examining import HOST, broken, examine

from pocketmq.client.admin.targets import BrokerAddress
from pocketmq.client.cluster.instance import Dependencies
from pocketmq.doctor import DoctorSettings, Report
from pocketmq.doctor.connection_checks import waits
from pocketmq.doctor.context import DoctorContext
from pocketmq.net.address import Address
from pocketmq.testing import run


def test_a_broker_that_advertises_a_loopback_address() -> None:
    async def main() -> Report:
        async with real_cluster(advertised_host="127.0.0.1") as c:
            return await examine(c, topic="T")

    report = run(main())

    assert broken(report) == ["broker"]
    assert "broker-a does not answer at its registered address 127.0.0.1:10911" in report.sentence
    assert "It advertises a loopback address: set brokerIP1" in report.sentence


def test_a_broker_behind_a_firewall_is_reported() -> None:
    async def main() -> Report:
        async with real_cluster() as c:
            await examine(c)
            c.network.partition(HOST, c.place("broker-a"))
            return await examine(c)

    report = run(main())

    assert broken(report) == ["broker"]
    assert "firewall" in report.sentence


def test_requests_that_wait_long_at_a_broker_are_a_note() -> None:
    place = BrokerAddress("broker-a", "DefaultCluster", 0, Address("10.0.1.1", 10911))
    context = DoctorContext(DoctorSettings(name_servers="10.0.0.1:9876"), Dependencies(), None, None)
    context.runtime = {
        place: {"sendThreadPoolQueueHeadWaitTimeMills": "1500", "pullThreadPoolQueueHeadWaitTimeMills": "200"}
    }

    assert waits(context) == ["sends wait 1,500 ms at broker-a: the broker is overloaded"]
