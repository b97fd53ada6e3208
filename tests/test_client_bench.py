"""The benchmark of the client: its table is right, and a small run of it works."""

import json

import pytest
from bench.client.__main__ import main
from bench.client.measured import Measured, Tally, decode, encode, middle, percentile_us
from bench.client.peers import JAVA, REDIS, Beside, Peer, measure, middle_rates
from bench.client.report import aims, beside, sheet
from bench.client.rows import ROWS, Row, chosen
from bench.client.soak import is_flat
from bench.client.stage import Pace, Result

ROW = Row("sends", "window", 512, 1_000, 5.0, "w512", "async512")
TINY = Pace(seconds=0.1, warm_s=0.05, messages=1_000, shots=1)


def result(rate: float, client_us: float) -> Result:
    return Result(Measured(messages=int(rate), seconds=1.0, client_us=client_us), 2.0)


@pytest.mark.parametrize(
    ("rate", "client_us", "said"),
    [
        (1_000, 5.0, "≥ 1,000/s: met, ≤ 5 us: met"),
        (999, 5.1, "≥ 1,000/s: missed, ≤ 5 us: missed"),
    ],
)
def test_goals_are_judged_by_their_direction(rate: float, client_us: float, said: str) -> None:
    assert aims(ROW, 100, result(rate, client_us)) == said
    assert aims(ROW, 1024, result(rate, client_us)) == ""


def test_another_client_is_shown_with_the_ratio_to_ours() -> None:
    redis, java = Peer(REDIS, {("w512", 100): Beside(500.0, 7.0)}), Peer(JAVA, {}, "Java: not installed")

    shown = sheet({(ROW, 100): result(1_000, 4.0)}, [redis, java], ["a note"])

    assert shown.rows[0][-6:] == ["500", "2.00", "7.0", "–", "", ""]
    assert shown.notes == ["a note", "Java: not installed"]
    assert beside(ROW, 1024, result(1, 1), redis) == ["–", "", ""]


def test_output_of_the_tools_is_parsed() -> None:
    lines = [
        json.dumps({"row": f"py redis {row}", "size": 100, "rate": rate, "client_us": 10 * rate})
        for row, rate in (("w1", 1), ("w1", 3), ("w1", 2), ("e2e", 9))
    ]

    java = json.dumps({"row": "java sync1", "size": 100, "rate": 5, "client_us": 1})

    assert middle_rates(lines, "") == {("w1", 100): Beside(2.0, 20.0), ("e2e", 100): Beside(9.0, 90.0)}
    assert middle_rates([java], "java ") == {("sync1", 100): Beside(5.0, 1.0)}


def test_a_client_that_is_not_installed_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    [peer] = measure([REDIS], [ROW], [100], TINY, 1.0)

    assert peer.rates == {}
    assert peer.problem.startswith("redis-py: ")


def test_results_are_passed_as_text_and_the_median_is_used() -> None:
    shots = [Measured(messages=count, seconds=1.0, client_us=1.0) for count in (5, 1, 3)]

    assert middle(shots).messages == 3
    assert decode(encode(shots[0])) == shots[0]
    assert percentile_us([3_000, 1_000, 2_000], 0.5) == 2.0
    assert percentile_us([], 0.5) == 0.0
    assert Tally().end().rate == 0


def test_rows_are_chosen_by_mode_or_by_mode_and_number() -> None:
    assert [row.number for row in chosen(["window"])] == [64, 512]
    assert [row.number for row in chosen(["window512"])] == [512]
    assert chosen([]) == list(ROWS)
    assert chosen(["nothing"]) == []


def test_a_small_run_measures_every_kind_of_load(capsys: pytest.CaptureFixture[str]) -> None:
    main(["threads1", "consume_pool", "e2e_many", "--quick"], pace=TINY)

    said = capsys.readouterr().out
    for title in ("blocking sends, 1 thread", "consumed, pool listener", "end to end, batched"):
        assert title in said
    assert "failed" not in said
    assert "went wrong" not in said


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        ([50.0] * 9, True),
        ([10.0] * 3 + [50.0] * 3 + [53.9] * 3, True),
        ([10.0] * 3 + [50.0] * 3 + [54.1] * 3, False),
        ([50.0], False),
    ],
)
def test_memory_is_flat_if_the_last_third_needs_no_more(samples: list[float], said: bool) -> None:
    assert is_flat(samples) is said


def test_a_row_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["nothing"])

    assert "unknown row nothing" in capsys.readouterr().err
