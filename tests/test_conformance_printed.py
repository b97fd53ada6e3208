"""The comparison of the output of Java programs: volatile parts are ignored, and nothing else."""

import re
from pathlib import Path

import pytest
from conformance import __main__ as program
from conformance import apache
from conformance.clients import conversations
from conformance.mqadmin import commands, subcommands
from conformance.printed import Printed, Purpose, explained, flaws_of, judge, lines_of
from conformance.report import Outcome, Scenario, Trial, Verdict
from tests.golden import needs_golden

SENT = "sent SendResult [sendStatus=SEND_OK, msgId={}, offsetMsgId={}, queueId={}], queueOffset={}]"
MESSAGE = (
    "consumed MessageExt [queueId=0, storeSize=241, sysFlag=0, bornHost=/127.0.0.1:{}, storeTimestamp={}, bodyCRC={}, "
    "toString()=Message{{flag=0, properties={{{}}}, body=[{}]}}]"
)


def flaws(theirs: str, ours: str, version: str = "5.3.3") -> list[str]:
    return flaws_of(Printed(theirs, 0), Printed(ours, 0), version)


def judged(found: list[str], *purposes: Purpose) -> Outcome:
    def run(trial: Trial) -> None:
        judge(trial, "subject", found, purposes)

    (outcome,) = Trial(Scenario("some", ["subject"], run), "5.3.3", Path("nowhere"), lambda _: None).run()
    return outcome


def test_ids_addresses_and_numbers_of_a_run_are_ignored() -> None:
    one = SENT.format("7F0000010D5F4E0E2F2A49F631770000", "7F00000100004A4200000000000053BD", 0, 7)
    other = SENT.format("FD" + 54 * "0", "7F000001000052760000000000000000", 1, 0)

    assert flaws(one, other) == []


def test_the_content_of_a_message_is_compared() -> None:
    same = MESSAGE.format(4711, 1794732071406, 99, "KEYS=a, TAGS=b", "1, 2")

    assert flaws(same, MESSAGE.format(1, 2, 99, "TAGS=b, KEYS=a", "1, 2")) == []
    for other in (
        MESSAGE.format(4711, 1, 98, "KEYS=a, TAGS=b", "1, 2"),
        MESSAGE.format(4711, 1, 99, "KEYS=a, TAGS=c", "1, 2"),
        MESSAGE.format(4711, 1, 99, "KEYS=a, TAGS=b", "1, 3"),
    ):
        missing, unexpected = flaws(same, other)
        assert missing.startswith("missing: consumed")
        assert unexpected.startswith("not expected: consumed")


def test_a_body_that_is_a_time_may_differ() -> None:
    def due(text: str, crc: int) -> str:
        return MESSAGE.format(1, 1, crc, "KEYS=a", ", ".join(map(str, text.encode())))

    assert flaws(due("due 1794732029515", 1), due("due 1794999999999", 2)) == []
    assert flaws(due("due 1", 1), due("due 2", 2)) != []


def test_lines_may_have_any_order_but_equal_counts() -> None:
    assert flaws("a\nb\n", "b\na\n") == []
    assert flaws("a\n", "a\na\n") == ["not expected: a"]
    assert flaws_of(Printed("a\n", 0), Printed("a\na\n", 0), "5.3.3", once=True) == []


def test_failures_are_compared_by_their_code() -> None:
    theirs = (
        "failed: MQBrokerException: CODE: 17  DESC: topic[T] not exist\nSee https://somewhere\n\tat some.Java(Line:1)\n"
    )

    assert flaws(theirs, "failed: MQBrokerException: CODE: 17  DESC: no topic T BROKER: 127.0.0.1:1\n") == []
    assert flaws(theirs, "failed: MQBrokerException: CODE: 16  DESC: topic[T] not exist\n") != []


def test_the_exit_code_is_compared() -> None:
    assert flaws_of(Printed("", 0), Printed("", 1), "5.3.3") == ["exit code 1 instead of 0"]
    assert flaws_of(Printed("", 0), Printed("", None), "5.3.3") == ["exit code None instead of 0"]


def test_columns_may_be_as_wide_as_their_numbers() -> None:
    assert lines_of("StayTopic   broker-a   0     4\n") == lines_of("StayTopic broker-a 0         12345\n")
    assert lines_of("StayTopic   broker-a   0\n") != lines_of("StayTopic   broker-a   0     4\n")


def test_properties_that_a_release_does_not_store_are_ignored_for_it_alone() -> None:
    theirs = MESSAGE.format(1, 1, 1, "KEYS=a", "1")
    ours = MESSAGE.format(1, 1, 1, "KEYS=a, MSG_REGION=DefaultRegion, TRACE_ON=true, WAIT=true", "1")

    assert flaws(theirs, ours, "4.9.7") == []
    assert flaws(theirs, ours, "5.3.3") != []


def test_differences_are_on_purpose_only_if_listed() -> None:
    purpose = Purpose("no pop here", "subj", "pop")

    assert judged([]).verdict is Verdict.PASS
    assert judged(["missing: pop"], purpose) == Outcome("some", "subject", "5.3.3", Verdict.DIFFERS, "no pop here")
    assert judged(["missing: pop"], purpose._replace(passes=True))[3:] == (Verdict.PASS, "no pop here")
    assert judged(["missing: pop", "missing: push"], purpose).verdict is Verdict.FAIL
    assert judged(["missing: pop"], purpose._replace(subjects="other")).verdict is Verdict.FAIL
    assert judged(["missing: pop"], purpose._replace(version="4.9.7")).verdict is Verdict.FAIL
    old = purpose._replace(version="4.9.7")
    assert explained("4.9.7", "subject", "pop", [old]) == old


def test_without_recordings_the_dependent_parts_are_skipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(apache, "GOLDEN", tmp_path / "nothing")

    assert program.main(["--part", "clients", "--part", "mqadmin", "--part", "clusters"]) == 0

    assert capsys.readouterr().out.count("skipped, as there is no") == 3


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(SystemExit):
        program.main(["--part", "nothing"])


@needs_golden
@pytest.mark.parametrize("version", apache.VERSIONS)
def test_every_captured_command_is_run_once_with_its_gaps_filled(version: str) -> None:
    found = commands.captured(version)
    facts = {commands.BROKER: "10.0.0.1:1", commands.OFFSET_ID: "A", commands.UNIQUE_ID: "B", commands.CLIENT: "C"}

    lines = [" ".join(command.filled(facts)) for command in found]

    assert len(set(lines)) == len(lines) > 70
    assert not any(re.search(r"<|127\.0\.0\.1[:@]|7F000001(?!0{24})", line) for line in lines)


@needs_golden
def test_repeated_sends_follow_the_captured_conversations() -> None:
    lines = [command.line for command in commands.captured("5.3.3")]

    (again,) = [line for line in lines if line.startswith("queryMsgById") and "-s true" in line]

    assert lines.index("printMsg -t StayTopic -s TagB") < lines.index(again) < lines.index("noSuchCommand")


@needs_golden
def test_every_captured_conversation_is_replayed() -> None:
    for version in apache.VERSIONS:
        for mode in ("json", "binary"):
            captured = {path.stem for path in (apache.GOLDEN / "wire" / version / mode).glob("*.txt")}
            assert captured == set(conversations.names(version, mode))


@needs_golden
def test_recordings_match_themselves() -> None:
    for version in apache.VERSIONS:
        texts = [command.printed for command in commands.captured(version)]
        texts += [conversations.captured(version, "json", name) for name in conversations.names(version, "json")]
        assert [flaw for text in texts for flaw in flaws_of(text, text, version)] == []


def test_every_reason_is_used_once() -> None:
    for purposes in (conversations.PURPOSES, subcommands.PURPOSES):
        reasons = [(purpose.why, purpose.version) for purpose in purposes]
        assert len(set(reasons)) == len(reasons)
