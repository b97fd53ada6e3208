"""The broker's benchmarks: their counts, their goals, their end, and a small run against a real broker."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bench.broker import __main__ as program
from bench.broker import afterwards, ceiling, sections, starting
from bench.broker.budget import CALM, GIB, Budget, UsedUp
from bench.broker.calls import Line
from bench.broker.contest import Contest, Outcome
from bench.broker.frames import FIRST_OPAQUE, batch_format, pull_format, send_format
from bench.broker.generators import Generator, Pace, our_generator
from bench.broker.growth import growth_sheets
from bench.broker.ledger import Ledger, count_records
from bench.broker.load import Load, percentile, read_options
from bench.broker.loads import disturbance
from bench.broker.machine import TICKS, Moment, disturbed, moment
from bench.broker.page import BROKER, FOLDER, NAMES, write, written
from bench.broker.rows import AIMS, Aim, aims_cell, all_shapes, latency_sheet, rate_sheet, sync_shapes
from bench.broker.scale import DEFAULT, QUICK
from bench.broker.sections import Bench
from bench.broker.servers import APACHE, OURS, Target, Wishes, reason_without_apache
from bench.broker.sheets import Sheet, as_markdown
from bench.broker.shots import NotMeasured, Result, Shape, Shot, middle, read_shot
from bench.samples import SAMPLES, record

import pocketmq
from pocketmq.protocol.batch import decode_batch
from pocketmq.protocol.command import Command, decode_command
from pocketmq.protocol.frames import split_frames

ROOT = Path(__file__).parents[1]
SEND = Shape("send", 16, 64, 100)
PULL = Shape("pull", 1, 8, 100, 32)
BATCH = Shape("batch", 1, 8, 100, 32)
TINY = QUICK._replace(
    name="tiny",
    seconds=dict.fromkeys(QUICK.seconds, 60),
    spare_s=0,
    disk_bytes=GIB,
    pace=Pace(0.1, 0),
    shapes=[Shape("send", 2, 8, 100), PULL._replace(window=1)],
    later_shapes=[Shape("send", 2, 8, 100)],
    sync_shapes=[Shape("send", 1, 1, 100)],
    fill_messages=320,
    topics=(3, 30),
    groups=(70,),
    connections=(4,),
    log_gib=(0.001,),
    topics_settle_s=0,
    starts=1,
    idle_s=0.1,
)


def shot(rate: float = 1000.0, server_us: float = 10.0, **changes: float) -> Shot:
    facts = {"errors": 0, "lost": 0, "acked": 5, "stored": 5, "generator_cpu": 0.1} | changes
    return Shot(rate, 100.0, 200.0, 300.0, server_us, **facts)  # type: ignore[arg-type]


def result(rate: float = 1000.0, server_us: float = 10.0) -> Result:
    return middle([shot(rate, server_us)])


class Scripted(Generator):
    """Returns measurements from a list instead of measuring; fills nothing."""

    script: dict[str, list[Shot | NotMeasured]]
    fired: list[str]
    on_fire: Callable[[], None]

    def fire(self, target: Target, shape: Shape, pace: Pace, *words: str) -> Shot:
        self.on_fire()
        self.fired.append(" ".join([target.name, *words]))
        found = self.script[target.name].pop(0)
        if isinstance(found, NotMeasured):
            raise found
        return found

    def fill(self, target: Target, shape: Shape, requests: int, *words: str) -> Shot:
        return shot()


def scripted(script: dict[str, list[Shot | NotMeasured]]) -> Scripted:
    generator = Scripted("scripted", ())
    generator.script, generator.fired, generator.on_fire = script, [], lambda: None
    return generator


def target(name: str) -> Target:
    return Target(name, 0, (), ())


def budget_in(folder: Path, seconds: float = 100, spare_s: float = 0) -> Budget:
    budget = Budget(spare_s, folder, GIB)
    budget.grant(seconds)
    return budget


# shots


def test_a_line_of_a_generator_is_a_measurement_and_unknown_fields_are_ignored() -> None:
    line = (
        '{"mode":"send","rate":1.5,"p50_us":1,"p99_us":2,"p999_us":3,"server_us":4,"errors":1,"lost":2,"acked":10,'
        '"stored":7,"generator_cpu":0.5,"server_rss_mb":30.1}'
    )

    found = read_shot(f"some words\n{line}\n")

    assert (found.rate, found.p999_us) == (1.5, 3)
    assert found.wrong == 1 + 2 + 3


def test_unsearched_messages_do_not_count_as_missing() -> None:
    assert shot(stored=-1).wrong == 0


@pytest.mark.parametrize("printed", ["", "no json\n", '{"rate":1}\n'])
def test_a_generator_without_output_has_measured_nothing(printed: str) -> None:
    with pytest.raises(NotMeasured, match="printed"):
        read_shot(printed)


def test_each_number_is_the_median_of_all_measurements_and_errors_add_up() -> None:
    found = middle([shot(10, 3), shot(30, 1, errors=2), shot(20, 2, lost=1)])

    assert (found.rate, found.server_us, found.wrong, found.shots) == (20, 2, 3, 3)


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        (SEND, "send 16 × 64, 100 B"),
        (Shape("send", 1000, 1, 100), "send 1,000 × 1, 100 B"),
        (Shape("batch", 1, 8, 1024, 32), "batch of 32 1 × 8, 1 KB"),
        (Shape("oneway", 1, 1, 100), "oneway, 100 B"),
    ],
)
def test_a_load_is_named_by_its_messages_in_flight(shape: Shape, text: str) -> None:
    assert str(shape) == text


def test_both_generators_accept_the_arguments_of_every_load() -> None:
    for shape in {*all_shapes(), *sync_shapes()}:
        options, _ = read_options(["--json", *shape.words()])

        assert (options.mode, options.conns, options.window) == (shape.mode, shape.connections, shape.window)
        assert options.size == shape.body_bytes


# aims and tables


def test_every_goal_of_the_plan_belongs_to_a_measured_load() -> None:
    assert set(AIMS) <= set(all_shapes())
    assert AIMS[SEND].times == AIMS[Shape("send", 1, 64, 100)].times == 3
    assert (AIMS[BATCH].times, AIMS[PULL].times) == (1.5, 2)


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        (result(300, 2.5), result(100, 10), "≥ 3 times: met, CPU ≤ 1/4: met, ≥ 200/s: met"),
        (result(299, 2.6), result(100, 10), "≥ 3 times: missed, CPU ≤ 1/4: missed, ≥ 200/s: met"),
        (result(199, 1), None, "≥ 200/s: missed"),
        (None, result(100, 10), ""),
    ],
)
def test_without_the_other_broker_goals_are_not_judged(ours: Result | None, theirs: Result | None, said: str) -> None:
    assert aims_cell(Aim(times=3, rate=200), ours, theirs) == said


def test_rates_and_costs_are_shown_beside_the_other_broker_with_their_ratios() -> None:
    both = Outcome(SEND, {OURS: result(3000, 5), APACHE: result(1000, 20)}, [])
    alone = Outcome(Shape("oneway", 1, 1, 100), {OURS: result(50, 1)}, ["something was wrong"])

    sheet = rate_sheet("t", [both, alone], has_aims=False)

    assert sheet.rows[0] == ["send 16 × 64, 100 B", "3,000", "1,000", "3.00", "5.00", "20.00", "0.25"]
    assert sheet.rows[1][1:] == ["50", "–", "", "1.00", "–", ""]
    assert sheet.notes == ["something was wrong"]
    assert rate_sheet("t", [both], has_aims=True).rows[0][-1].startswith("≥ 3 times: met")


def test_times_to_the_answer_are_shown_for_answered_requests() -> None:
    outcomes = [Outcome(SEND, {OURS: result()}, []), Outcome(Shape("oneway", 1, 1, 100), {OURS: result()}, [])]

    assert latency_sheet("t", outcomes).rows == [["send 16 × 64, 100 B", "100", "200", "300", "–", "–", "–"]]


def test_a_missed_goal_is_bold_in_the_documents() -> None:
    sheet = Sheet("title", ["load", "goals"], [["a", "x: missed, y: met"]], ["a note"])

    assert as_markdown(sheet).splitlines() == [
        "## title",
        "",
        "| load | goals |",
        "| --- | ---: |",
        "| a | x: **missed**, y: met |",
        "",
        "- a note",
    ]


def test_results_are_written_to_their_own_page(tmp_path: Path) -> None:
    write(["today", "here"], [Sheet("t", ["h"], [["c"]])], BROKER, tmp_path)

    text = (tmp_path / "broker.md").read_text("utf-8")
    assert text == written(["today", "here"], [Sheet("t", ["h"], [["c"]])], BROKER)
    assert text.startswith("# Results: broker\n")
    assert "\n\ntoday · here\n\n## t\n" in text


@pytest.mark.parametrize("program", NAMES)
def test_the_results_in_the_documentation_have_the_form_that_the_benchmark_writes(program: str) -> None:
    head, _, _ = written([], [], program).rstrip().rpartition("\n")

    assert (FOLDER / f"{NAMES[program]}.md").read_text("utf-8").startswith(head)


# what bounds a run


def test_no_measurement_starts_without_time_or_disk_space(tmp_path: Path) -> None:
    now, free = [0.0], [10 * GIB]
    budget = Budget(0, tmp_path, GIB, clock=lambda: now[0], free_bytes=lambda _: free[0])

    with pytest.raises(UsedUp):
        budget.check(1)
    budget.grant(60)
    budget.check(60)
    now[0] = 1.0
    with pytest.raises(UsedUp, match="1 s have passed, and there is no time for more"):
        budget.check(60)
    budget.grant(10)
    budget.check(60)
    free[0] = 8 * GIB
    with pytest.raises(UsedUp, match="1 GiB of disk"):
        budget.check()


def test_disturbed_measurements_are_repeated_while_time_remains(tmp_path: Path) -> None:
    budget = Budget(2.5, tmp_path, GIB)

    assert not budget.may_repeat(CALM, 1)
    assert [budget.may_repeat(0.5, 1) for _ in range(3)] == [True, True, False]


def test_runs_are_as_short_as_documented() -> None:
    assert sum(DEFAULT.seconds.values()) <= 725
    assert sum(QUICK.seconds.values()) <= 115
    assert DEFAULT.seconds.keys() == QUICK.seconds.keys() == program.SECTIONS.keys()
    assert set(QUICK.shapes) <= set(DEFAULT.shapes)
    assert DEFAULT.topics[-1] == 10_000
    assert DEFAULT.groups[-1] == DEFAULT.connections[-1] == 1_000
    assert DEFAULT.log_gib[-1] == 8


def test_the_time_of_other_programs_is_neither_idle_nor_ours() -> None:
    before = moment(f"cpu  {TICKS} 0 0 {TICKS} 0 0 0 0 0 0\ncpu0 …")
    after = moment(f"cpu  {3 * TICKS} 0 0 {2 * TICKS} 0 0 0 {TICKS} 9 9\ncpu0 …")

    assert before == Moment(1.0, 2.0)
    assert disturbed(before, after, own_s=2.0) == 0.25
    assert disturbed(before, after, own_s=9.0) == 0.0
    assert moment().all_s > moment().busy_s > 0


# contests


def test_servers_take_turns_and_each_round_starts_with_another(tmp_path: Path) -> None:
    said: list[str] = []
    generator = scripted({"a": [shot(1), shot(3), shot(2)], "b": [shot(10), shot(30), shot(20)]})
    contest = Contest([target("a"), target("b")], generator, Pace(1, 0), 3, budget_in(tmp_path), said.append)

    outcome = contest.run(SEND, {"b": ("--more",)}, "title")

    assert generator.fired == ["a", "b --more", "b --more", "a", "a", "b --more"]
    assert {name: found.rate for name, found in outcome.results.items()} == {"a": 2, "b": 20}
    assert said == ["title: a 2/s 10.00 us, b 20/s 10.00 us"]


def test_a_failed_server_is_skipped_and_the_reason_reported(tmp_path: Path) -> None:
    generator = scripted({"a": [NotMeasured("it broke")], "b": [shot(1, errors=3), shot(2)]})
    contest = Contest([target("a"), target("b")], generator, Pace(1, 0), 2, budget_in(tmp_path), lambda _: None)

    outcome = contest.run(SEND)

    assert generator.fired == ["a", "b", "b"]
    assert list(outcome.results) == ["b"]
    assert outcome.notes[0] == "send 16 × 64, 100 B, a: it broke"
    assert "b: 3 requests went wrong" in outcome.notes[1]


def test_of_a_disturbed_measurement_and_its_repetition_the_calmer_one_is_used(tmp_path: Path) -> None:
    generator = scripted({"a": [shot(1, disturbed=0.5), shot(2, disturbed=0.2), shot(3, disturbed=0.9)]})
    contest = Contest([target("a")], generator, Pace(1, 0), 2, budget_in(tmp_path, spare_s=1), lambda _: None)

    assert contest.run(SEND).results["a"].rate == 2.5


def test_a_load_is_reported_with_its_completed_measurements(tmp_path: Path) -> None:
    now = [0.0]
    budget = Budget(0, tmp_path, GIB, clock=lambda: now[0])
    budget.grant(2.5)
    generator = scripted({"a": [shot(1), shot(3)]})
    contest = Contest([target("a")], generator, Pace(1, 0), 3, budget, lambda _: None)

    now[0] = 1.0
    generator.on_fire = lambda: now.__setitem__(0, 2.0)
    assert contest.run(SEND).results["a"].shots == 1
    with pytest.raises(UsedUp):
        contest.run(SEND)


def test_the_load_of_the_machine_is_reported_and_explained() -> None:
    quiet = Outcome(SEND, {OURS: middle([shot(disturbed=0.01)] * 3)}, [])
    busy = Outcome(SEND, {OURS: middle([shot(disturbed=0.5)])}, [])

    assert disturbance([]) == "nothing was measured"
    assert disturbance([quiet]).startswith("medians of 3 measurements; other programs used 1% of the machine")
    assert "say little" not in disturbance([quiet])
    assert "one measurement each" in disturbance([busy])
    assert "rates of such a run say little" in disturbance([busy])
    assert "1 to 3 measurements" in disturbance([quiet, busy])


# our generator


@pytest.fixture(scope="module")
def broker() -> Iterator[int]:
    with pocketmq.Server() as server:
        yield int(server.broker_address.rpartition(":")[2])


def load(port: int, *words: str) -> dict[str, object]:
    options, _ = read_options(["--port", str(port), "--seconds", "0.05", "--warm", "0", *words])
    return Load(options).run()


@pytest.mark.parametrize("words", [["--conns", "2", "--window", "8"], ["--mode", "batch", "--batch", "4"]])
def test_every_acknowledged_message_has_its_own_position(broker: int, words: list[str]) -> None:
    told = load(broker, "--topic", "stored", "--queues", "2", *words)

    assert told["acked"] == told["stored"]
    assert isinstance(told["rate"], float)
    assert told["rate"] > 0
    assert (told["errors"], told["lost"]) == (0, 0)


def test_messages_without_answers_are_counted_in_the_queues(broker: int) -> None:
    told = load(broker, "--mode", "oneway", "--topic", "oneway", "--queues", "2")

    assert told["stored"] == told["messages"] != 0
    assert told["lost"] == 0


def test_pulls_rotate_over_queues_and_every_record_is_the_requested_one(broker: int) -> None:
    filled = load(broker, "--topic", "pulled", "--queues", "1", "--count", "20", "--window", "4")
    told = load(broker, "--mode", "pull", "--topic", "pulled", "--queues", "1", "--pull-max", "3", "--count", "30")

    assert filled["acked"] == 20
    assert told["acked"] == 90


def test_a_queue_with_too_few_messages_is_not_pulled(broker: int) -> None:
    with Line(broker) as line:
        line.create_topic("empty", 1)
    with pytest.raises(NotMeasured, match="holds 0 messages"):
        load(broker, "--mode", "pull", "--topic", "empty", "--queues", "1")


def test_sends_to_several_topics_create_them(broker: int) -> None:
    load(broker, "--topic", "several", "--topics", "3", "--queues", "1", "--count", "7")

    with Line(broker) as line:
        assert [line.stored(f"several0000{number}", 1) for number in range(3)] == [3, 2, 2]


def test_refusals_are_counted_and_the_first_one_is_shown(broker: int) -> None:
    told = load(broker, "--topic", "x" * 200, "--no-create", "--no-verify", "--count", "3")

    assert (told["errors"], told["acked"]) == (3, 0)
    assert "x" * 20 in str(told["first_error"])


def test_the_module_runs_as_a_command_with_text_or_json_output(broker: int) -> None:
    command = [sys.executable, "-m", "bench.broker.load", "--port", str(broker), "--count", "5", "--warm", "0"]

    for words, expected in ([], "messages/s"), (["--json"], '"acked":5'):
        done = subprocess.run([*command, *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=30)
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout


def test_an_unreachable_server_is_reported_in_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.broker.load", "--port", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )

    assert done.returncode == 1
    assert done.stderr.startswith("127.0.0.1:1: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words", [["--conns", "0"], ["--conns", "1000", "--window", "1000"], ["--mode", "pull", "--topics", "2"]]
)
def test_impossible_options_are_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        read_options(words)


def test_percentiles_of_merged_values_are_correct() -> None:
    assert percentile([], 0.5) == 0
    assert percentile([7.0], 0.999) == 7
    assert percentile(range(100), 0.5) == 50
    assert percentile(range(100), 0.99) == 99


def test_duplicate_and_missing_positions_are_found() -> None:
    for places, is_true in [
        ([], True),
        ([7, 5, 6], True),
        ([5, 6, 6, 8], False),
        ([5, 7], False),
        ([5, 5], False),
    ]:
        ledger = Ledger()
        for place in places:
            ledger.add(place)
        assert ledger.is_true is is_true, places

    batches = Ledger()
    batches.add(32, 32)
    batches.add(0, 32)
    assert batches.is_true
    batches.add(63)
    assert not batches.is_true


def test_records_of_a_pull_are_parsed_and_foreign_ones_refused() -> None:
    body = b"".join(record(sample) for sample in SAMPLES[3:6])

    assert count_records(body, 3) == 3
    assert count_records(b"", 3) == 0
    with pytest.raises(NotMeasured, match="asked for offset 2 and answered with 3"):
        count_records(body, 2)
    with pytest.raises(NotMeasured, match="not the start of a stored message"):
        count_records(b"x" * 100, 0)
    with pytest.raises(NotMeasured, match="not the start of a stored message"):
        count_records(body[:-1], 3)


def filled(text: bytes, **numbers: int) -> Command:
    (frame,) = split_frames(text % {name.encode(): number for name, number in numbers.items()})
    return decode_command(frame)


def test_a_filled_template_is_the_request_with_other_numbers() -> None:
    send = filled(send_format("t", 1, 4, 130), opaque=FIRST_OPAQUE + 7, born=1_700_000_000_001, id0=0xAB)
    pull = filled(pull_format("t", 1, 32), opaque=FIRST_OPAQUE, offset=12)

    assert (send.opaque, len(send.body)) == (FIRST_OPAQUE + 7, 130)
    assert send.ext is not None
    assert (send.ext["b"], send.ext["e"], send.ext["g"]) == ("t", "1", "1700000000001")
    assert "000000AB\x02WAIT" in send.ext["i"]
    assert pull.ext is not None
    assert int(pull.ext["queueOffset"]) == 12


def test_each_message_of_a_batch_has_its_own_id() -> None:
    batch = filled(batch_format("t", 0, 1, 100, 3), opaque=FIRST_OPAQUE, born=1, id0=1, id1=2, id2=3)

    properties = [properties for _, _, properties in decode_batch(batch.body)]
    assert len(set(properties)) == 3
    assert all(b"UNIQ_KEY\x017F00" in text for text in properties)


# a whole run


@pytest.mark.usefixtures("with_our_generator")
def test_a_small_run_measures_a_real_broker_and_stops_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program.main(["null", "start", "async", "--without-apache", "--folder", str(tmp_path)], default=TINY)

    printed = capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
    for title in (
        "upper limit",
        "start and idle",
        "asynchronous flush",
        "send 2 × 8, 100 B",
        "pull of 32 1 × 1, 100 B",
    ):
        assert title in printed
    assert "CPU time after the last answer" in printed
    assert "without the Apache broker: not wanted" in printed
    assert "≤ 60 MiB: met" in printed
    assert "went wrong" not in printed
    assert "bench.broker.load" in printed


def test_growth_is_shown_for_each_size_beside_a_new_broker(
    broker: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def no_process(folder: Path, wishes: Wishes) -> Iterator[Target]:
        yield Target(OURS, broker, (), ())

    monkeypatch.setattr(sections, "pocketmq", no_process)
    monkeypatch.setattr(sections, "QUIET_S", 0.0)
    generator = scripted({"new": [shot(server_us=10)] * 30, "grown": [shot(server_us=13), *[shot(server_us=12)] * 30]})
    bench = Bench(tmp_path, TINY, generator, budget_in(tmp_path), lambda _: None, "", tmp_path)

    (sheet,) = growth_sheets(bench)

    assert list(dict.fromkeys(row[0] for row in sheet.rows)) == [
        "3 topics, one used",
        "3 of 3 topics used, beside one",
        "3 topics used, beside 3",
        "30 topics, one used",
        "30 of 30 topics used, beside one",
        "30 topics used, beside 30",
        "70 groups",
        "4 connections",
        "4 connections, all send",
        "log of 0.001 GiB",
    ]
    assert sheet.rows[0][2:] == ["13.00", "10.00", "1.30", "1,000", "1,000", "missed"]
    assert {row[-1] for row in sheet.rows[1:]} == {"met"}
    assert "grown --topic many --topics 30 --queues 1 --no-verify" in generator.fired
    assert [note.split(":")[0] for note in sheet.notes[1:]] == [
        "3 topics were created by sends",
        "27 topics were created by sends",
    ]
    assert "grown --conns 4" in generator.fired


@pytest.fixture
def with_our_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_compiler(name: str, folder: Path) -> Path:
        raise NotMeasured("no compiler in this test")

    monkeypatch.setattr(program, "best_generator", lambda folder: (our_generator(), "no compiler in this test"))
    monkeypatch.setattr(ceiling, "compiled", no_compiler)
    monkeypatch.setattr(starting, "CALM_DOWN_S", 0.0)
    monkeypatch.setattr(afterwards, "LOOK_S", 0.1)
    monkeypatch.setattr(sections, "QUIET_S", 0.1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [(["nothing"], "there are: start, async"), (["--folder", "nowhere/at/all"], "is not a folder")],
)
def test_a_run_without_measurements_is_refused(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        program.main(arguments)

    assert sentence in " ".join(capsys.readouterr().err.split())


def test_a_disk_without_enough_space_is_refused_with_both_sizes(tmp_path: Path) -> None:
    assert program.missing_space(tmp_path, TINY) == ""
    assert "may need 1048576.0 GiB" in program.missing_space(tmp_path, TINY._replace(disk_bytes=2**20 * GIB))


def test_the_absence_of_the_apache_broker_is_explained_in_one_sentence() -> None:
    assert "\n" not in reason_without_apache()
