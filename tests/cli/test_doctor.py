"""`pocketmq doctor` with a real server. `tests/doctor` tests the findings."""

from collections.abc import Callable

import pytest
from click.testing import CliRunner
from tests.cli.running_cluster import RunningCluster

import pocketmq
from pocketmq.cli import main
from pocketmq.doctor import STEP_NAMES, Report, Step
from pocketmq.doctor.report import broken


def test_a_healthy_cluster_exits_with_0(cluster: RunningCluster) -> None:
    result = cluster.run("doctor")

    assert result.exit_code == 0
    assert result.stdout.startswith("✓ address")
    assert "· topic        skipped: no topic requested" in result.stdout
    assert result.stdout.endswith("\nNo problem found.\n")


def test_a_broken_step_is_printed_with_its_fix(cluster: RunningCluster) -> None:
    cluster.create("examined")

    result = cluster.run("doctor", "--topic", "exmined")

    assert result.exit_code == 3
    assert "✗ topic" in result.stdout
    assert result.stdout.splitlines()[-1].startswith(
        "topic: topic exmined does not exist: No route info of this topic. Did you mean examined?"
    )


def test_json_has_a_line_for_each_step_and_one_for_the_report(cluster: RunningCluster) -> None:
    rows = cluster.ask("doctor")

    assert [row["step"] for row in rows[:-1]] == list(STEP_NAMES)
    assert (rows[-1]["is_healthy"], rows[-1]["first_broken"]) == (True, None)


def test_an_address_without_a_server_exits_with_3() -> None:
    result = CliRunner().invoke(main, ["doctor", "--namesrv", "127.0.0.1:1"])

    assert result.exit_code == 3
    assert "✗ name server  127.0.0.1:1 does not answer" in result.stdout


def test_a_long_fix_is_printed_completely(monkeypatch: pytest.MonkeyPatch) -> None:
    advice = "Set brokerIP1 to an address that clients reach. " * 10 + "This is the end"
    step = Step("broker", broken("it does not answer", advice, "a hint " * 60 + "ends here"))
    report = Report(name_servers="", topic=None, group=None, at_ms=0, steps=(step,))

    def examine(*_: object, on_step: Callable[[Step], None], **__: object) -> Report:
        on_step(step)
        return report

    monkeypatch.setattr(pocketmq.doctor, "examine", examine)

    printed = " ".join(CliRunner().invoke(main, ["doctor"]).stdout.split())

    assert "This is the end." in printed
    assert "ends here" in printed


def test_plain_text_and_missing_accounts_are_not_marked_as_ok(cluster: RunningCluster) -> None:
    lines = cluster.run("doctor").stdout.splitlines()

    assert any(line.startswith("- tls          plain text") for line in lines)
    assert any(line.startswith("- accounts     every client on this machine has access") for line in lines)
