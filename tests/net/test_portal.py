"""The portal: coroutines for blocking callers, across threads, forks and Ctrl-C."""

import asyncio
import concurrent.futures
import contextlib
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator

import pytest
import uvloop

from pocketmq.clock import SystemClock
from pocketmq.errors import CallTimedOut, TopicNotFound, WrongState
from pocketmq.net.portal import Portal


@pytest.fixture
def portal() -> Iterator[Portal]:
    with Portal("test portal") as portal:
        yield portal


def portal_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "test portal"]


async def give(value: int) -> int:
    await asyncio.sleep(0)
    return value


class Sleeper:
    """A coroutine that never ends by itself, and how it ended."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.cancelled = threading.Event()

    async def sleep(self) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


def test_the_thread_is_started_by_the_first_use_and_joined_by_close() -> None:
    portal = Portal("test portal")
    assert portal_threads() == []

    assert portal.run(give(7)) == 7
    assert len(portal_threads()) == 1
    portal.close()

    assert portal_threads() == []


def test_uvloop_is_used_when_it_is_installed(portal: Portal) -> None:
    async def kind() -> type:
        return type(asyncio.get_running_loop())

    assert portal.run(kind()) is uvloop.Loop


def test_work_runs_in_the_thread_of_the_portal_and_its_errors_are_returned(portal: Portal) -> None:
    async def where() -> str:
        return threading.current_thread().name

    async def fail() -> None:
        raise TopicNotFound("no T")

    assert portal.run(where()) == "test portal"
    with pytest.raises(TopicNotFound, match="no T"):
        portal.run(fail())


def test_many_threads_share_one_loop() -> None:
    with Portal("test portal") as portal, concurrent.futures.ThreadPoolExecutor(8) as callers:
        results = list(callers.map(lambda number: portal.run(give(number)), range(100)))

        assert results == list(range(100))
        assert len(portal_threads()) == 1


def test_a_blocking_call_inside_a_running_loop_is_refused_with_advice(portal: Portal) -> None:
    async def main() -> None:
        with pytest.raises(WrongState, match="use the async class and `await` it"):
            portal.run(give(1))

    asyncio.run(main())
    assert portal_threads() == []


def test_a_blocking_call_inside_the_portals_own_loop_is_refused(portal: Portal) -> None:
    async def inner() -> int:
        return portal.run(give(1))

    with pytest.raises(WrongState, match="running event loop"):
        portal.run(inner())


def test_work_may_be_submitted_from_a_running_loop(portal: Portal) -> None:
    async def main() -> int:
        return await asyncio.wrap_future(portal.submit(give(3)))

    assert asyncio.run(main()) == 3


def test_a_call_beyond_its_timeout_is_cancelled(portal: Portal) -> None:
    sleeper = Sleeper()

    with pytest.raises(CallTimedOut, match=r"no result within 0\.05 s"):
        portal.run(sleeper.sleep(), timeout=0.05)

    assert sleeper.cancelled.wait(5)


def test_a_timeout_of_the_coroutine_itself_is_raised(portal: Portal) -> None:
    async def fail() -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        portal.run(fail(), timeout=5)


def test_cancelling_a_submitted_future_cancels_its_coroutine(portal: Portal) -> None:
    sleeper = Sleeper()
    future = portal.submit(sleeper.sleep())
    assert sleeper.began.wait(5)

    future.cancel()

    assert sleeper.cancelled.wait(5)


def test_closing_cancels_running_calls_and_notifies_waiting_threads() -> None:
    portal = Portal("test portal")
    sleeper = Sleeper()
    with concurrent.futures.ThreadPoolExecutor(1) as caller:
        waiting = caller.submit(portal.run, sleeper.sleep())
        assert sleeper.began.wait(5)

        portal.close()

        with pytest.raises(WrongState, match="closed before the call was done"):
            waiting.result(5)
    assert sleeper.cancelled.is_set()
    assert portal_threads() == []


def test_a_slow_close_names_the_task_that_does_not_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pocketmq.net.portal.LONG_CLOSE_S", 0.05)
    portal, sleeper = Portal("test portal"), Sleeper()

    async def stubborn() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await sleeper.sleep()
        while not caplog.records:  # noqa: ASYNC110 a line of the log is no event
            await asyncio.sleep(0.01)

    portal.submit(stubborn())
    sleeper.began.wait()
    portal.close()

    assert "test portal: close has taken" in caplog.text
    assert "stubborn" in caplog.text
    assert portal_threads() == []


class LoopThatHangs(asyncio.SelectorEventLoop):
    """Closed, but `close` does not return until `release`."""

    release = threading.Event()

    def close(self) -> None:
        super().close()
        self.release.wait()


def test_a_close_does_not_wait_for_a_loop_that_is_closed_and_does_not_return(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pocketmq.net.portal.LONG_CLOSE_S", 0.05)
    portal = Portal("test portal", loop_factory=LoopThatHangs)
    portal.run(give(1))

    portal.close()

    assert "test portal: the event loop did not close" in caplog.text
    (thread,) = portal_threads()
    LoopThatHangs.release.set()
    thread.join()


def test_a_closed_portal_refuses_work_and_may_be_closed_again() -> None:
    portal = Portal("test portal")
    portal.close()
    portal.close()

    with pytest.raises(WrongState, match="the portal is closed"):
        portal.run(give(1))
    with pytest.raises(WrongState, match="the portal is closed"):
        portal.submit(give(1))
    assert portal_threads() == []


def test_a_portal_is_not_closed_from_its_own_loop(portal: Portal) -> None:
    async def close() -> None:
        portal.close()

    with pytest.raises(WrongState, match="from its own loop"):
        portal.run(close())

    assert portal.run(give(1)) == 1


def test_a_failure_to_create_the_loop_is_raised_and_the_next_call_retries() -> None:
    broken = True

    def new_loop() -> asyncio.AbstractEventLoop:
        if broken:
            raise OSError("no descriptors")
        return asyncio.new_event_loop()

    with Portal("test portal", loop_factory=new_loop) as portal:
        with pytest.raises(OSError, match="no descriptors"):
            portal.run(give(1))
        broken = False

        assert portal.run(give(1)) == 1


def test_ctrl_c_leaves_promptly_and_cancels_the_coroutine(portal: Portal) -> None:
    sleeper = Sleeper()
    clock = SystemClock()
    main_thread = threading.main_thread().ident
    assert main_thread is not None

    def press() -> None:
        assert sleeper.began.wait(5)
        signal.pthread_kill(main_thread, signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    started = clock.monotonic()
    with pytest.raises(KeyboardInterrupt):
        portal.run(sleeper.sleep())

    assert clock.monotonic() - started < 5
    assert sleeper.cancelled.wait(5)
    presser.join()
    assert portal.run(give(1)) == 1


FORKING = """
    import asyncio, gc, os, sys, warnings
    import uvloop
    from pocketmq.errors import WrongState
    from pocketmq.net.portal import Portal

    warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn about every fork with threads

    async def wait_and_give(value):
        await asyncio.sleep(0.01)
        return value

    portal = Portal(loop_factory={factory})
    assert portal.run(wait_and_give("parent")) == "parent"
    child = os.fork()
    if child == 0:
        try:
            assert portal.run(wait_and_give("child"), timeout=10) == "child"
            grandchild = os.fork()
            if grandchild == 0:
                assert portal.run(wait_and_give("grandchild"), timeout=10) == "grandchild"
                os._exit(0)
            _, status = os.waitpid(grandchild, 0)
            assert status == 0, status
            gc.collect()
            portal.close()
        except BaseException as error:
            print("child:", repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    assert portal.run(wait_and_give("parent again"), timeout=10) == "parent again"
    portal.close()
    print("fine")
"""


@pytest.mark.parametrize("factory", ["asyncio.new_event_loop", "uvloop.new_event_loop"])
def test_after_a_fork_parent_and_child_each_have_a_portal_that_works(factory: str) -> None:
    script = textwrap.dedent(FORKING).format(factory=factory)

    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", script], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.stdout, done.returncode) == ("fine\n", 0), done.stdout + done.stderr
