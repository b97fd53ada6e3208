import io
import threading

import pytest
from rich.console import Console
from rich.status import Status

from pocketmq.cli import output as screen_module
from pocketmq.cli.output import LateBar, late_bar, late_line, screen
from pocketmq.testing import FakeClock


def test_tables_in_a_file_are_wide() -> None:
    assert screen().width == 200


def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Make the error stream a terminal; returns its output."""
    shown = io.StringIO()
    monkeypatch.setattr(screen_module, "Console", lambda **_: Console(file=shown, force_terminal=True, width=100))
    return shown


def test_quick_work_shows_no_progress_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = terminal(monkeypatch)
    clock = FakeClock()

    with late_bar("reading", clock=clock) as bar:
        bar.update(1, 10)
        clock.advance_ms(1_900)
        bar.update(10, 10)

    assert shown.getvalue() == ""


def test_slow_work_shows_a_progress_bar_with_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = terminal(monkeypatch)
    clock = FakeClock()

    with late_bar("reading", clock=clock) as bar:
        clock.advance_ms(2_100)
        bar.update(1024**2, 4 * 1024**2)
        bar.update(2 * 1024**2, 4 * 1024**2)

    assert "reading" in shown.getvalue()
    assert "4.0 MiB" in shown.getvalue()


def test_without_a_terminal_no_progress_bar_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    clock = FakeClock()
    bar = LateBar(clock, "reading")
    clock.advance_ms(5_000)

    bar.update(1, 2)
    bar.close()
    bar.close()

    assert capsys.readouterr().err == ""


def test_a_progress_bar_may_count_things(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = terminal(monkeypatch)
    clock = FakeClock()

    with late_bar("sending", in_bytes=False, clock=clock) as bar:
        clock.advance_ms(2_100)
        bar.update(3, 4)

    assert "3/4" in shown.getvalue()


def test_a_long_wait_shows_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = terminal(monkeypatch)
    started = threading.Event()
    start = Status.start

    def start_and_tell(status: Status) -> None:
        start(status)
        started.set()

    monkeypatch.setattr(Status, "start", start_and_tell)

    with late_line("asking [red]a", patience_s=0):
        assert started.wait(30)

    assert "asking [red]a …" in shown.getvalue()


def test_a_short_wait_shows_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = terminal(monkeypatch)

    with late_line("asking", patience_s=600):
        pass

    assert "asking" not in shown.getvalue()
