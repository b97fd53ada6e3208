"""`pocketmq doctor` on a real server; what it finds is the matter of `tests/doctor`."""

from collections.abc import Callable

import pytest
from click.testing import CliRunner
from tests.cli.running_cluster import RunningCluster

import pocketmq
from pocketmq.cli import main
from pocketmq.doctor import STEP_NAMES, Report, Step
from pocketmq.doctor.report import broken


def test_a_cluster_that_is_well_ends_with_0(cluster: RunningCluster) -> None:
    result = cluster.run("doctor")

    assert result.exit_code == 0
    assert result.stdout.startswith("✓ address")
    assert "· topic        not looked at: no topic was named" in result.stdout
    assert result.stdout.endswith("\nNothing is broken that can be seen from here.\n")


def test_what_is_broken_is_told_with_what_to_do(cluster: RunningCluster) -> None:
    cluster.create("examined")

    result = cluster.run("doctor", "--topic", "exmined")

    assert result.exit_code == 3
    assert "✗ topic" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("topic: no broker has the topic exmined. Did you mean examined?")


def test_json_has_a_line_for_each_step_and_one_for_the_whole(cluster: RunningCluster) -> None:
    rows = cluster.ask("doctor")

    assert [row["step"] for row in rows[:-1]] == list(STEP_NAMES)
    assert (rows[-1]["is_well"], rows[-1]["first_broken"]) == (True, None)


def test_nobody_at_the_address_ends_with_3() -> None:
    result = CliRunner().invoke(main, ["doctor", "--namesrv", "127.0.0.1:1"])

    assert result.exit_code == 3
    assert "✗ name server  127.0.0.1:1 does not answer" in result.stdout


def test_what_to_do_is_told_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    advice = "Set brokerIP1 to an address that clients reach. " * 10 + "This is the end"
    step = Step("broker", broken("it does not answer", advice, "a note " * 60 + "ends here"))
    report = Report(name_servers="", topic=None, group=None, at_ms=0, steps=(step,))

    def examine(*_: object, on_step: Callable[[Step], None], **__: object) -> Report:
        on_step(step)
        return report

    monkeypatch.setattr(pocketmq.doctor, "examine", examine)

    told = " ".join(CliRunner().invoke(main, ["doctor"]).stdout.split())

    assert "This is the end." in told
    assert "ends here" in told


def test_plain_text_and_no_accounts_have_no_tick(cluster: RunningCluster) -> None:
    lines = cluster.run("doctor").stdout.splitlines()

    assert any(line.startswith("- tls          plain text") for line in lines)
    assert any(line.startswith("- accounts     everybody on this machine is let in") for line in lines)
