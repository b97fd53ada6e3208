"""Checks of the brokers: disk, clock, flush mode, TLS and accounts."""

from pathlib import Path

import pytest
from tests.client.real_cluster import real_cluster
from tests.doctor.examining import broken, examine, first

import pocketmq
from pocketmq import doctor
from pocketmq.client.cluster.calls import StateCalls
from pocketmq.clock import Clock
from pocketmq.doctor import Report, Verdict
from pocketmq.doctor.broker_checks import broker_now_ms
from pocketmq.protocol.signing import Credentials
from pocketmq.testing import run

ACCOUNTS = """
[[account]]
access_key = "operator"
secret = "the secret of operators"
admin = true

[[account]]
access_key = "reader"
secret = "the secret of readers"
"""


class ShiftedClock:
    """Another machine's clock."""

    def __init__(self, clock: Clock, shift_ms: int) -> None:
        self._clock = clock
        self._shift_ms = shift_ms

    def now_ms(self) -> int:
        return self._clock.now_ms() + self._shift_ms

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def uptime_ms(self) -> int:
        return self._clock.uptime_ms()

    def settled_ms(self) -> int:
        return self.now_ms()

    def steady_ms(self) -> int:
        return self.now_ms()


def test_a_full_disk() -> None:
    tight = dict.fromkeys(("diskMaxUsedSpaceRatio", "diskSpaceCleanForciblyRatio", "diskSpaceWarningLevelRatio"), 1)
    with pocketmq.Server(settings=tight) as server:
        report = doctor.examine(server.name_server)

    assert broken(report) == ["disk"]
    assert "the broker rejects messages from 1%" in first(report)


def test_a_disk_that_is_cleaned_is_a_warning() -> None:
    with pocketmq.Server(settings={"diskMaxUsedSpaceRatio": 1}) as server:
        report = doctor.examine(server.name_server)

    assert report.is_healthy
    assert "the broker deletes old messages at any hour" in report.step("disk").finding.hints[0]


@pytest.mark.parametrize(("shift_ms", "words"), [(60_000, "1 min behind"), (-7_300_000, "2 h 1 min ahead of")])
def test_a_wrong_clock_is_reported(shift_ms: int, words: str) -> None:
    async def main() -> Report:
        async with real_cluster() as c:
            return await examine(c, clock=ShiftedClock(c.clock, shift_ms))

    report = run(main())

    assert broken(report) == ["clock"]
    assert f"the clock of broker-a is {words}" in first(report)


def test_a_difference_below_the_limit_is_no_skew() -> None:
    async def main() -> Report:
        async with real_cluster() as c:
            return await examine(c, clock=ShiftedClock(c.clock, 3_000))

    assert run(main()).is_healthy


@pytest.mark.parametrize(
    ("table", "now_ms"),
    [
        ({"bootTimestamp": "1000", "runtime": "[ 0 days, 0 hours, 1 minutes, 3 seconds ]"}, 64_000),
        ({"bootTimestamp": "0", "runtime": "[ 1 days, 1 hours, 0 minutes, 0 seconds ]"}, 90_000_000),
        ({"bootTimestamp": "1000"}, None),
        ({"runtime": "[ 0 days, 0 hours, 1 minutes, 3 seconds ]"}, None),
        ({"bootTimestamp": "1000", "runtime": "long"}, None),
    ],
)
def test_the_time_of_a_broker_follows_from_its_runtime_information(table: dict[str, str], now_ms: int | None) -> None:
    assert broker_now_ms(table) == now_ms


def test_the_flush_mode_is_reported_with_its_meaning() -> None:
    async def main() -> str:
        async with real_cluster() as c:
            return (await examine(c)).step("flush").finding.text

    assert run(main()).startswith("broker-a ASYNC_FLUSH: messages are synced to disk after the send")


@pytest.mark.parametrize(
    ("table", "hints"),
    [
        ({"dispatchBehindBytes": "0"}, 0),
        ({"dispatchBehindBytes": "100000000"}, 1),
        ({"dispatchBehindBytes": "100000000", "queuesBehindBytes": "0"}, 0),
        ({"dispatchBehindBytes": "100000000", "queuesBehindBytes": "100000000"}, 1),
    ],
)
def test_queues_behind_the_log_are_a_note_and_a_late_key_index_is_not(
    monkeypatch: pytest.MonkeyPatch, table: dict[str, str], hints: int
) -> None:
    async def runtime_info(*_: object) -> dict[str, str]:
        return table

    monkeypatch.setattr(StateCalls, "runtime_info", runtime_info)

    async def main() -> tuple[str, ...]:
        async with real_cluster() as c:
            return (await examine(c)).step("flush").finding.hints

    found = run(main())

    assert len(found) == hints
    assert all("the queues of broker-a are 100,000,000 bytes behind the commit log" in hint for hint in found)


def test_missing_accounts_and_tls_are_facts_on_loopback() -> None:
    with pocketmq.Server() as server:
        report = doctor.examine(server.name_server)
        signed = doctor.examine(server.name_server, credentials=Credentials("a-client", "the secret of a client"))

    assert report.step("accounts").finding.text.startswith("every client on this machine has access")
    assert report.step("tls").finding.text == "plain text, only within this machine"
    assert "does not check accounts" in signed.step("accounts").finding.text
    for step in (report.step("accounts"), report.step("tls"), signed.step("accounts")):
        assert step.verdict is Verdict.INFO, "neither good nor bad on loopback"


def test_missing_accounts_and_tls_are_warnings_outside_loopback() -> None:
    async def main() -> Report:
        async with real_cluster() as c:
            return await examine(c)

    report = run(main())

    for name in ("accounts", "tls"):
        assert report.step(name).verdict is Verdict.WARNING
        assert report.step(name).finding.fix
    assert report.is_healthy
    assert report.sentence == "No problem found; 2 warnings above."


def test_a_rejected_account(tmp_path: Path) -> None:
    accounts = tmp_path / "accounts.toml"
    accounts.write_text(ACCOUNTS)
    accounts.chmod(0o600)
    with pocketmq.Server(accounts=accounts) as server:
        anonymous = doctor.examine(server.name_server)
        wrong = doctor.examine(server.name_server, credentials=Credentials("operator", "the wrong secret of it"))
        right = doctor.examine(server.name_server, credentials=Credentials("operator", "the secret of operators"))

    assert broken(anonymous) == ["permission"]
    assert broken(wrong) == ["permission"]
    assert "Use an account" in wrong.sentence
    assert right.is_healthy
    assert right.step("accounts").finding.text == "accounts are required"
