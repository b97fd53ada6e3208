"""The loop that programs run on."""

import asyncio

import pytest
import uvloop

from pocketmq.net import loops


def test_uvloop_is_used_when_it_is_installed() -> None:
    loop = loops.new_loop()
    loop.close()

    assert isinstance(loop, uvloop.Loop)


def test_without_uvloop_asyncio_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "uvloop", None)

    loop = loops.new_loop()
    loop.close()

    assert isinstance(loop, asyncio.SelectorEventLoop)
