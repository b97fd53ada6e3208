"""The conformance suite is correct: it finds differences, reports skipped checks, and passes no check that it did not run."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from conformance import __main__ as program
from conformance import apache
from conformance.report import Grid, Outcome, Scenario, Trial, Verdict, as_markdown, write_section
from conformance.store import numbered
from conformance.store.drafts import TOPICS, sample
from conformance.store.file_sizes import SMALL
from conformance.store.numbered import Placed
from conformance.store.our_store import STORE_HOST, OurStore, verify
from conformance.store.snapshots import Snapshot, differences, stored


def trial(run: object, *checks: str) -> list[Outcome]:
    scenario = Scenario("some", checks, run)  # type: ignore[arg-type]
    return Trial(scenario, "5.3.3", Path("nowhere"), lambda _: None).run()


def kept(*numbers: int) -> Snapshot:
    """A store that holds these messages, each queue's in order."""
    found: Snapshot = {key: [] for key in numbered.KEYS}
    for place, number in enumerate(numbers):
        queue = found["Kept", number % numbered.QUEUES]
        queue.append(stored(numbered.numbered(number), len(queue), 1000 * place, 0, STORE_HOST))
    return found


HEAD_PLACES = {"log_offset": 28, "packed_born_host": 48, "store_ms": 56, "prepared_offset": 76}
"""Fields of eight bytes in the head of a record with IPv4 hosts."""


def changed(found: Snapshot, at: int, **fields: Any) -> Snapshot:
    queue = list(found["Kept", 0])
    head = queue[at].head
    for name in HEAD_PLACES.keys() & fields.keys():
        value = fields.pop(name)
        start = HEAD_PLACES[name]
        head = head[:start] + (value if isinstance(value, bytes) else int(value).to_bytes(8)) + head[start + 8 :]
    queue[at] = msgspec.structs.replace(queue[at], head=head, **fields)
    return {**found, ("Kept", 0): queue}


def test_without_java_everything_is_skipped_with_a_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = program.PAGE.read_text("utf-8")
    (tmp_path / "run").touch()
    monkeypatch.setattr(apache, "PEERS", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))

    code = program.main(["--version", "5.3.3"])

    printed = capsys.readouterr().out
    assert code == 0
    assert "not installed: java, javac, mvn" in printed
    assert "0 pass, 0 fail" in printed
    assert program.PAGE.read_text("utf-8") == page


def test_without_the_starter_of_brokers_everything_is_skipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(apache, "PEERS", tmp_path)

    assert program.main(["one owner"]) == 0
    assert "POCKETMQ_PEERS" in capsys.readouterr().out


def test_an_unknown_scenario_and_a_folder_in_use_are_refused(tmp_path: Path) -> None:
    (tmp_path / "something").touch()

    for arguments in (["no such scenario"], ["--keep", str(tmp_path)]):
        with pytest.raises(SystemExit):
            program.main(arguments)


def test_a_check_fails_with_its_flaws_and_passes_without() -> None:
    def run(trial: Trial) -> None:
        trial.expect("good", [])
        trial.expect("bad", ["one", "two", "three", "four"])

    good, bad = trial(run, "good", "bad")

    assert (good.verdict, good.note) == (Verdict.PASS, "")
    assert (bad.verdict, bad.note) == (Verdict.FAIL, "one; two; three (and 1 more)")


def test_an_interrupted_scenario_fails_at_its_step_and_skips_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    def run(trial: Trial) -> None:
        trial.expect("first", [])
        raise ValueError("the disk burns")

    outcomes = trial(run, "first", "second", "third")

    assert [outcome.verdict for outcome in outcomes] == [Verdict.PASS, Verdict.FAIL, Verdict.SKIPPED]
    assert outcomes[1].note == "ValueError: the disk burns"
    assert "the disk burns" in capsys.readouterr().err


def test_a_check_that_was_never_reached_does_not_pass() -> None:
    (outcome,) = trial(lambda _: None, "forgotten")

    assert outcome.verdict is Verdict.FAIL


def test_the_table_has_a_row_for_each_check_and_a_note_for_each_reason() -> None:
    grid = Grid(
        [
            Outcome("turns", "reads", "5.3.3", Verdict.PASS),
            Outcome("turns", "reads", "4.9.7", Verdict.FAIL, "a byte | differs"),
            Outcome("turns", "writes", "5.3.3", Verdict.SKIPPED, "no disk"),
            Outcome("turns", "writes", "4.9.7", Verdict.SKIPPED, "no disk"),
        ]
    )

    text = as_markdown(grid)

    assert "| scenario | check | 5.3.3 | 4.9.7 |" in text
    assert "| turns | reads | pass | fail [1] |" in text
    assert "|  | writes | skipped [2] | skipped [2] |" in text
    assert "[1] a byte | differs" in text
    assert grid.count(Verdict.SKIPPED) == 2


def test_a_section_of_the_page_is_replaced_and_the_others_stay(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\nText.\n\n## Store\n\nold\n\n## Clients\n\nmore\n", "utf-8")

    write_section(page, "Store", "new")
    write_section(page, "Spark", "also new")

    assert page.read_text("utf-8") == (
        "# Title\n\nText.\n\n## Store\n\nnew\n\n## Clients\n\nmore\n\n## Spark\n\nalso new\n"
    )


def test_every_differing_field_is_reported() -> None:
    expected = kept(0, 3, 6)
    others: dict[str, object] = {
        "body": b"6 other",
        "raw_properties": b"",
        "log_offset": 7,
        "queue_offset": 9,
        "sys_flag": 8,
        "packed_born_host": b"\0" * 8,
        "store_ms": 1,
        "prepared_offset": 1,
    }

    assert list(differences(expected, expected)) == []
    for name, value in others.items():
        (flaw,) = differences(expected, changed(expected, 2, **{name: value}))
        assert f": {name} is " in flaw


def test_more_messages_than_expected_are_a_fault_unless_the_topic_grows() -> None:
    less, more = kept(0, 3), kept(0, 3, 6)

    assert list(differences(less, more)) == ["Kept:0 has 3 messages instead of 2"]
    assert list(differences(less, more, growing=["Kept"])) == []
    assert list(differences(more, less, growing=["Kept"])) == ["Kept:0 has 2 messages instead of 3"]


def test_an_acknowledged_message_must_be_at_its_offset() -> None:
    found = kept(0, 3, 6)

    assert list(numbered.flaws_of(found, [Placed(3, 1, 1000)])) == []
    assert "is not there" in next(numbered.flaws_of(found, [Placed(9, 3, 3000)]))
    assert "there is 3" in next(numbered.flaws_of(found, [Placed(6, 1, 2000)]))


def test_unacknowledged_messages_must_be_complete_and_in_order() -> None:
    found = kept(0, 3, 6)

    assert "not what was sent" in next(numbered.flaws_of(changed(found, 1, body=b"3 torn"), []))
    assert "is followed by" in next(numbered.flaws_of(changed(found, 2, queue_offset=5), []))
    assert "the log goes back" in next(numbered.flaws_of(changed(found, 2, log_offset=10), []))


def test_acknowledgements_are_read_unchanged_from_a_pipe() -> None:
    placed = Placed(1_000_007, 12, 34_567)

    assert Placed.parse(placed.line()) == placed


@pytest.mark.parametrize("version", apache.VERSIONS)
def test_the_sample_is_stored_correctly_and_verified_as_sound(version: str, tmp_path: Path) -> None:
    drafts = sample(version, SMALL.largest_body)
    with OurStore(tmp_path / "store", SMALL) as ours:
        written = ours.append(drafts)
        expected: Snapshot = {}
        for message, draft in zip(written, drafts, strict=True):
            if draft.enters_queue:
                expected.setdefault((draft.topic, draft.queue_id), []).append(message)
        found = ours.read(expected)

    assert list(differences(expected, found)) == []
    assert {draft.topic for draft in drafts} >= set(TOPICS) - {"Late", "Burst"}
    assert verify(tmp_path / "store", SMALL) == []
