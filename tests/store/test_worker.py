"""The thread that does blocking work for an owner."""

import threading
from collections.abc import Callable, Iterator

import pytest
from tests.store.kit import OwnerThread

from pocketmq.errors import WrongState
from pocketmq.store.worker import Worker


@pytest.fixture
def owner() -> OwnerThread:
    return OwnerThread()


@pytest.fixture
def worker(owner: OwnerThread) -> Iterator[Worker]:
    worker = Worker("test", owner.post)
    yield worker
    assert worker.close(10)


def fail(error: Exception) -> None:
    raise AssertionError("not expected") from error


def test_work_runs_on_the_thread_and_its_result_is_returned_to_the_owner(owner: OwnerThread, worker: Worker) -> None:
    seen: list[threading.Thread] = []

    worker.submit(threading.current_thread, lambda there: seen.extend((there, threading.current_thread())), fail)
    owner.run_until(lambda: bool(seen))

    assert seen[0].name == "test"
    assert seen[0].daemon
    assert seen[1] is threading.current_thread()


def test_an_error_of_the_work_is_returned_as_a_value(owner: OwnerThread, worker: Worker) -> None:
    errors: list[Exception] = []

    worker.submit(lambda: 1 // 0, fail_if_done, errors.append)
    owner.run_until(lambda: bool(errors))

    assert isinstance(errors[0], ZeroDivisionError)


def fail_if_done(_: int) -> None:
    raise AssertionError("not expected")


def test_jobs_run_in_order_and_count_as_busy_until_their_result_was_read(worker: Worker) -> None:
    done: list[int] = []
    busy = [worker.busy]

    for number in range(100):
        worker.submit(lambda number=number: number, done.append, fail)  # type: ignore[misc]
    busy.append(worker.busy)
    assert worker.drain(10)
    busy.append(worker.busy)

    assert done == list(range(100))
    assert busy == [False, True, False]


def test_results_have_no_effect_before_the_owner_reads_them(worker: Worker) -> None:
    done: list[None] = []
    reached = threading.Event()

    worker.submit(reached.set, done.append, fail)
    assert reached.wait(10)

    assert done == []
    assert worker.drain(10)
    assert done == [None]


def test_the_thread_continues_although_the_owner_could_not_be_woken() -> None:
    done: list[int] = []
    posted: list[Callable[[], None]] = []

    def post(callback: Callable[[], None]) -> None:
        posted.append(callback)
        raise MemoryError

    worker = Worker("test", post)
    worker.submit(lambda: 1, done.append, fail)
    worker.submit(lambda: 2, done.append, fail)

    assert worker.drain(10)
    assert (done, len(posted)) == ([1, 2], 2)
    assert worker.close(10)


def test_draining_does_not_wait_for_a_hanging_job(worker: Worker) -> None:
    hanging, release = threading.Event(), threading.Event()
    done: list[bool] = []

    worker.submit(waiting_for(hanging, release), done.append, fail)
    assert hanging.wait(10)

    assert not worker.drain(0.01)
    release.set()
    assert worker.drain(10)
    assert done == [True]


def test_closing_does_not_wait_for_a_hanging_job_and_the_thread_ends_later(owner: OwnerThread) -> None:
    worker = Worker("test", owner.post)
    hanging, release = threading.Event(), threading.Event()
    worker.submit(waiting_for(hanging, release), lambda _: None, fail)
    assert hanging.wait(10)

    assert not worker.close(0.01)

    release.set()
    assert worker.close(10)


def waiting_for(hanging: threading.Event, release: threading.Event) -> Callable[[], bool]:
    def work() -> bool:
        hanging.set()
        return release.wait(10)

    return work


def test_closing_completes_submitted_jobs_without_waking_the_owner() -> None:
    def ring(_: Callable[[], None]) -> None:
        rung.append(threading.current_thread())

    rung: list[threading.Thread] = []
    done: list[bool] = []
    worker = Worker("test", ring)
    hanging, release = threading.Event(), threading.Event()
    worker.submit(waiting_for(hanging, release), done.append, fail)
    assert hanging.wait(10)
    assert not worker.close(0)
    release.set()

    assert worker.close(10)

    assert done == [True]
    assert rung == []


def test_an_unused_worker_has_no_thread_and_closes(worker: Worker) -> None:
    before = threading.active_count()

    assert worker.drain(0)
    assert worker.close(0)
    assert worker.close(0)

    assert threading.active_count() == before


def test_a_closed_worker_accepts_no_jobs(worker: Worker) -> None:
    worker.close(0)

    with pytest.raises(WrongState, match="test is closed"):
        worker.submit(lambda: None, lambda _: None, fail)


def test_jobs_have_one_thread_although_the_next_is_submitted_during_the_first_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done, seen = threading.Event(), list[threading.Thread]()

    class Slow(threading.Thread):
        """Its jobs are done when `start` returns."""

        def start(self) -> None:
            super().start()
            assert done.wait(10)

    monkeypatch.setattr(threading, "Thread", Slow)
    worker = Worker("test", lambda settle: settle())

    def again(there: threading.Thread) -> None:
        seen.append(there)
        if len(seen) < 3:
            worker.submit(threading.current_thread, again, fail)
        else:
            done.set()

    worker.submit(threading.current_thread, again, fail)

    assert len(set(seen)) == 1
    assert worker.close(10)


# a system without threads


class Refusing(threading.Thread):
    """Cannot be started, as when the system has no more threads."""

    def start(self) -> None:
        raise RuntimeError("can't start new thread")


def test_a_failed_start_of_a_thread_is_retried(
    owner: OwnerThread, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    worker, done = Worker("test", owner.post), list[int]()
    with monkeypatch.context() as patched:
        patched.setattr(threading, "Thread", Refusing)
        worker.submit(lambda: 1, done.append, fail)
        worker.submit(lambda: 2, done.append, fail)
        worker.settle()
        assert (worker.busy, done, worker.failed_starts) == (True, [], 3)

    worker.settle()
    owner.run_until(lambda: len(done) == 2)

    assert done == [1, 2]
    assert "cannot start the thread test; retrying: can't start new thread" in caplog.text
    assert "started the thread test after 3 failed attempts" in caplog.text
    assert worker.close(10)


def test_without_a_thread_a_waiting_owner_runs_the_job_itself(
    owner: OwnerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, done = Worker("test", owner.post), list[int]()
    monkeypatch.setattr(threading, "Thread", Refusing)
    worker.submit(lambda: 1, done.append, fail)

    assert worker.drain(10)
    assert done == [1]
    worker.submit(lambda: 2, done.append, fail)
    assert worker.close(10)
    assert done == [1, 2]
