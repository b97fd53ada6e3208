"""The web console beside the demo, and the demo without it."""

import sys
import urllib.request
from pathlib import Path

import pytest

from pocketmq.demo import servers as console
from pocketmq.demo.servers import running_console


def test_the_console_runs_until_the_end_of_the_block(shop: str, tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="the extra `console` is not installed")

    plot = tmp_path / "revenue.svg"
    plot.write_bytes(b"<svg />")

    with running_console(shop, 0, plot) as url:
        assert url is not None
        with urllib.request.urlopen(url, timeout=30) as page:
            assert b'src="/picture"' in page.read()

    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url, timeout=30)


def test_a_console_that_cannot_start_is_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(console, "PROGRAM", (sys.executable, "-c", "raise SystemExit(3)"))

    with running_console("127.0.0.1:1", 0, tmp_path / "none.svg") as url:
        assert url is None
