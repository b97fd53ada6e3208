"""The way to the brokers, where it differs from what the tests of the walk see."""

from tests.client.real_cluster import real_cluster
from tests.doctor.examining import HOST, broken, examine

from pocketmq.client.admin.reach import BrokerPlace
from pocketmq.client.cluster.instance import Surroundings
from pocketmq.doctor import DoctorSettings, Report
from pocketmq.doctor.reaching import waits
from pocketmq.doctor.visit import Visit
from pocketmq.net.address import Address
from pocketmq.testing import run


def test_a_broker_that_advertises_an_address_of_its_own_machine() -> None:
    async def main() -> Report:
        async with real_cluster(advertised_host="127.0.0.1") as c:
            return await examine(c, topic="T")

    report = run(main())

    assert broken(report) == ["broker"]
    assert "broker-a is registered as 127.0.0.1:10911" in report.sentence
    assert "It advertises an address of its own machine only: set brokerIP1" in report.sentence


def test_a_broker_behind_a_line_that_swallows_everything() -> None:
    async def main() -> Report:
        async with real_cluster() as c:
            await examine(c)
            c.network.partition(HOST, c.place("broker-a"))
            return await examine(c)

    report = run(main())

    assert broken(report) == ["broker"]
    assert "firewall" in report.sentence


def test_requests_that_wait_long_at_a_broker_are_a_note() -> None:
    place = BrokerPlace("broker-a", "DefaultCluster", 0, Address("10.0.1.1", 10911))
    visit = Visit(DoctorSettings(name_servers="10.0.0.1:9876"), Surroundings(), None, None)
    visit.runtime = {
        place: {"sendThreadPoolQueueHeadWaitTimeMills": "1500", "pullThreadPoolQueueHeadWaitTimeMills": "200"}
    }

    assert waits(visit) == ["sends wait 1,500 ms at broker-a for their turn: it is overloaded"]
