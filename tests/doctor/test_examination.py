"""One test for each step that can break: the report names this step and no other."""

import asyncio

import pytest
from tests.client.real_cluster import NAME_SERVER, Basket, real_cluster, until
from tests.doctor.examining import HOST, broken, examine, first, reading

from pocketmq import doctor
from pocketmq.doctor import STEP_NAMES, Report, Verdict
from pocketmq.doctor.report import skipped, unknown
from pocketmq.errors import InvalidName, InvalidSetting, WrongState
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.testing import run


def test_a_healthy_cluster_has_no_broken_step() -> None:
    async def main() -> Report:
        async with real_cluster() as c:
            basket = Basket()
            consumer = c.push_consumer()
            consumer.on("T")(basket)
            await consumer.start()
            await c.send("T", b"1")
            await basket.wait(1)
            await until(lambda: len(c.members("G")) == 1)
            await asyncio.sleep(30)
            try:
                return await examine(c, topic="T", group="G")
            finally:
                await consumer.stop()

    report = run(main())

    assert [step.name for step in report.steps] == list(STEP_NAMES)
    not_fine = {step.name: step.verdict for step in report.steps if step.verdict is not Verdict.OK}
    assert not_fine == {"tls": Verdict.WARNING, "accounts": Verdict.WARNING}, "this cluster is not on loopback"
    assert report.is_healthy
    assert report.sentence.startswith("No problem found")
    assert "1 message" in report.step("topic").finding.text
    assert "each owned by one member" in report.step("owner").finding.text


def test_steps_that_were_not_requested_are_skipped() -> None:
    async def main() -> Report:
        async with real_cluster() as c:
            return await examine(c)

    report = run(main())

    not_requested = {step.name for step in report.steps if step.verdict is Verdict.SKIPPED}
    assert not_requested == {"topic", "group", "subscription", "owner", "pull", "handler", "offset"}
    assert report.step("group").finding.text == "no group requested"
    assert report.is_healthy


def test_steps_are_yielded_one_by_one() -> None:
    async def main() -> list[str]:
        async with real_cluster() as c:
            seen: list[str] = []
            steps = doctor.examine_steps(str(NAME_SERVER), dependencies=c.dependencies(HOST), client_ip=HOST)
            async for step in steps:
                seen.append(step.name)
                if step.name == "broker":
                    break
            await steps.aclose()
            return seen

    assert run(main()) == ["address", "name server", "route", "broker"]


@pytest.mark.parametrize("address", ["", "10.0.0.1:port", "10.0.0.1:99999", ";"])
def test_an_invalid_address(address: str) -> None:
    async def main() -> Report:
        async with real_cluster() as c:
            return await examine(c, address)

    report = run(main())

    assert broken(report) == ["address"]
    assert [step.verdict for step in report.steps[1:]] == [Verdict.SKIPPED] * (len(STEP_NAMES) - 1)
    assert report.steps[-1].finding.text == "address is broken"


def test_an_unknown_host_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown_name(*_: object, **__: object) -> None:
        raise OSError("Name or service not known")

    async def main() -> Report:
        async with real_cluster() as c:
            monkeypatch.setattr(type(c.loop), "getaddrinfo", unknown_name)
            return await examine(c, "rocketmq.example:9876")

    report = run(main())

    assert broken(report) == ["address"]
    assert first(report) == "unknown host name rocketmq.example"


def test_an_address_without_a_name_server() -> None:
    async def main() -> Report:
        async with real_cluster() as c:
            return await examine(c, "10.0.0.9:9876")

    report = run(main())

    assert broken(report) == ["name server"]
    assert "10.0.0.9:9876 does not answer" in first(report)
    assert "Start the name server" in report.sentence


def test_the_address_of_a_broker_instead_of_a_name_server() -> None:
    async def main() -> Report:
        async with real_cluster() as c:
            return await examine(c, "10.0.1.1:10911")

    report = run(main())

    assert broken(report) == ["name server"]
    assert first(report) == "10.0.1.1:10911 is not a name server; it looks like a broker"
    assert "Give the address of a name server" in report.sentence


def test_a_firewall_before_the_name_server() -> None:
    async def main() -> Report:
        async with real_cluster() as c:
            c.network.partition(HOST, NAME_SERVER.host)
            return await examine(c)

    report = run(main())

    assert broken(report) == ["name server"]
    assert "firewall" in report.sentence


def test_one_name_server_of_two_that_is_silent_is_a_note() -> None:
    async def main() -> Report:
        async with real_cluster() as c:
            return await examine(c, f"10.0.0.9:9876;{NAME_SERVER}")

    report = run(main())

    assert report.is_healthy
    assert "10.0.0.9:9876 does not answer" in report.hints[0]


def test_a_name_server_that_no_broker_registered_at() -> None:
    async def main() -> Report:
        async with real_cluster() as c:
            await c.broker.stop()
            try:
                return await examine(c)
            finally:
                c.brokers.clear()

    report = run(main())

    assert broken(report) == ["route"]
    assert first(report) == f"no broker is registered at {NAME_SERVER}"


def test_a_firewall_before_a_broker() -> None:
    async def main() -> Report:
        async with real_cluster("broker-a", "broker-b") as c:
            c.network.partition(HOST, c.place("broker-b"))
            return await examine(c, topic="T", group="G")

    report = run(main())

    assert broken(report) == ["broker"]
    assert "broker broker-b does not answer at its registered address 10.0.1.2:10911" in first(report)
    assert "brokerIP1" in report.sentence


def test_a_topic_without_read_permission() -> None:
    async def main() -> Report:
        async with real_cluster() as c:
            c.add_topic("T", perm=2)
            return await examine(c, topic="T")

    report = run(main())

    assert broken(report) == ["permission"]
    assert first(report) == "topic T on broker-a does not allow reading"


def test_a_broker_without_write_permission() -> None:
    async def main() -> Report:
        async with real_cluster(permission=4) as c:
            return await examine(c)

    report = run(main())

    assert broken(report) == ["permission"]
    assert first(report) == "broker broker-a does not allow writing (brokerPermission=4)"


def test_a_topic_that_does_not_exist() -> None:
    async def main() -> Report:
        async with real_cluster(topics=["orders"]) as c:
            return await examine(c, topic="ordres", group="G")

    report = run(main())

    assert broken(report) == ["topic"]
    assert first(report) == "topic ordres does not exist: No route info of this topic"
    assert "Did you mean orders?" in report.sentence
    assert report.step("group").finding == unknown("topic is broken", "group G does not exist on any broker")
    assert report.step("subscription").finding == skipped("topic is broken")


def test_a_group_that_reads_another_topic_than_the_missing_one_is_healthy() -> None:
    async def main() -> Report:
        async with real_cluster() as c, reading(c, Basket()):
            return await examine(c, topic="ordres", group="G")

    report = run(main())

    assert broken(report) == ["topic"]
    assert report.step("group").verdict is Verdict.OK
    assert report.step("subscription").finding.hints == (
        "group G does not subscribe to ordres; it subscribes to: T (*)",
    )


def test_messages_in_unreadable_queues_are_reported() -> None:
    async def main() -> Report:
        async with real_cluster() as c:
            await c.send("T", b"1", queue=3)
            fewer = TopicConfig("T", read_queue_nums=2, write_queue_nums=4)
            c.broker.parts.state.topics.put([fewer], c.clock.now_ms())
            return await examine(c, topic="T")

    report = run(main())

    assert broken(report) == ["topic"]
    assert "1 message in queues that consumers can no longer read" in first(report)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="did you mean 'max_pull_age_ms'"):
        doctor.examine("127.0.0.1:1", max_pull_age=3)  # type: ignore[call-arg]
    with pytest.raises(InvalidSetting, match="from 1 to 100"):
        doctor.examine("127.0.0.1:1", retention_used_percent=101)


def test_a_step_that_takes_too_long_is_unknown() -> None:
    async def main() -> Report:
        async with real_cluster() as c:
            c.network.partition(HOST, NAME_SERVER.host)
            return await examine(c, step_timeout_ms=100)

    report = run(main())

    assert broken(report) == []
    assert report.step("name server").verdict is Verdict.UNKNOWN
    assert "within 100 ms" in report.step("name server").finding.text
    assert not report.is_healthy
    assert report.sentence == ("name server: no result within 100 ms. The steps after it were skipped.")


@pytest.mark.parametrize("named", [{"topic": "no name!"}, {"topic": ""}, {"group": "no name!"}])
def test_an_invalid_name_is_refused(named: dict[str, str]) -> None:
    with pytest.raises(InvalidName):
        doctor.examine("127.0.0.1:1", **named)  # type: ignore[arg-type]


def test_blocking_code_does_not_stop_a_loop() -> None:
    async def main() -> None:
        with pytest.raises(WrongState, match="running event loop"):
            doctor.examine("127.0.0.1:1")

    run(main())
