"""An event loop whose time is a number."""

import asyncio
import itertools
import random
import socket
import threading
from collections.abc import AsyncIterator

import pytest

from pocketmq.clock import SystemClock
from pocketmq.errors import Stuck
from pocketmq.testing import VirtualLoop, run


def running_loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


def test_an_hour_of_virtual_time_passes_at_once() -> None:
    async def main() -> float:
        await asyncio.sleep(3600)
        return running_loop().time()

    started = SystemClock().monotonic()

    assert run(main()) == 3600.0
    assert SystemClock().monotonic() - started < 2


def test_timers_fire_in_order_and_exactly_on_time() -> None:
    async def main() -> list[tuple[str, float]]:
        loop = running_loop()
        seen: list[tuple[str, float]] = []

        async def after(delay: float, name: str) -> None:
            await asyncio.sleep(delay)
            seen.append((name, loop.time()))

        async with asyncio.TaskGroup() as group:
            for delay, name in [(30.0, "heartbeat"), (0.1, "retry"), (20.0, "rebalance"), (0.1, "second retry")]:
                group.create_task(after(delay, name))
        return seen

    assert run(main()) == [("retry", 0.1), ("second retry", 0.1), ("rebalance", 20.0), ("heartbeat", 30.0)]


def test_timeouts_are_virtual() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(15):
                await asyncio.Event().wait()
        return running_loop().time()

    assert run(main()) == 15.0


def test_a_deadlock_is_an_error_that_names_the_waiting_tasks_and_lines() -> None:
    async def wait_for_ever(event: asyncio.Event) -> None:
        await event.wait()

    async def main() -> None:
        task = asyncio.create_task(wait_for_ever(asyncio.Event()), name="the consumer")
        await task

    with pytest.raises(Stuck, match="deadlock") as caught:
        run(main())

    notes = "\n".join(caught.value.__notes__)
    consumer = next(line for line in notes.splitlines() if "the consumer" in line)
    assert "wait_for_ever" in consumer
    assert "Event.wait" in consumer
    assert f"{__file__}:" in consumer
    assert "main" in notes
    assert "seed=0" in notes


def test_tasks_that_wait_in_a_generator_are_named_too() -> None:
    async def numbers() -> AsyncIterator[int]:
        yield 1
        await asyncio.Event().wait()

    async def main() -> None:
        async for _ in numbers():
            pass

    with pytest.raises(Stuck) as caught:
        run(main())

    assert "main" in "\n".join(caught.value.__notes__)


def test_cleanup_runs_after_a_deadlock() -> None:
    seen: list[str] = []

    async def main() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("closed")

    with pytest.raises(Stuck):
        run(main())

    assert seen == ["closed"]


def test_a_run_ends_after_its_virtual_time_limit() -> None:
    async def main() -> None:
        for _ in itertools.count():
            await asyncio.sleep(7)

    with pytest.raises(Stuck, match=r"60\.0 virtual seconds") as caught:
        run(main(), timeout_s=60.0)

    assert any("ended at 60.000 s" in note for note in caught.value.__notes__)
    assert any("waiting: " in note for note in caught.value.__notes__)


def test_cleanup_may_wait_after_the_time_limit() -> None:
    seen: list[float] = []

    async def main() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(5)
            seen.append(running_loop().time())

    with pytest.raises(Stuck):
        run(main(), timeout_s=60.0)

    assert seen == [65.0]


def test_a_timeout_of_the_program_itself_stays_a_timeout() -> None:
    async def main() -> None:
        async with asyncio.timeout(1):
            await asyncio.sleep(2)

    with pytest.raises(TimeoutError) as caught:
        run(main())

    assert not isinstance(caught.value, Stuck)


def test_a_spinning_task_is_found() -> None:
    async def main() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    with (
        pytest.raises(Stuck, match="spins"),
        asyncio.Runner(loop_factory=lambda: VirtualLoop(max_turns=1000)) as runner,
    ):
        runner.run(main())


def test_the_seed_repeats_a_run() -> None:
    async def main() -> list[float]:
        delays = [random.random(), running_loop().random.random()]
        await asyncio.sleep(delays[0])
        return [*delays, running_loop().time()]

    assert run(main(), seed=7) == run(main(), seed=7)
    assert run(main(), seed=7) != run(main(), seed=8)


def test_the_state_of_the_random_module_is_restored() -> None:
    async def main() -> None:
        random.random()

    random.seed(1)
    expected = random.random()
    random.seed(1)

    run(main(), seed=5)

    assert random.random() == expected


def test_time_stops_while_an_executor_works() -> None:
    release = threading.Event()

    async def main() -> tuple[bool, float]:
        loop = running_loop()
        timers: list[float] = []
        loop.call_later(10, lambda: timers.append(loop.time()))
        threading.Timer(0.05, release.set).start()
        answered = await loop.run_in_executor(None, release.wait, 5)
        return answered and not timers, loop.time()

    assert run(main()) == (True, 0.0)


def test_threads_of_the_executor_may_answer_while_other_tasks_sleep() -> None:
    async def main() -> list[int]:
        async with asyncio.TaskGroup() as group:
            sums = [group.create_task(asyncio.to_thread(sum, range(n))) for n in range(20)]
            group.create_task(asyncio.sleep(500))
        return [task.result() for task in sums]

    assert run(main()) == [sum(range(n)) for n in range(20)]


def test_a_thread_that_never_returns_is_reported_after_the_patience() -> None:
    release = threading.Event()

    async def main() -> None:
        try:
            await asyncio.to_thread(release.wait, 5)
        finally:
            release.set()

    with pytest.raises(Stuck, match="the loop has waited for a thread"):
        run(main(), patience_s=0.05)


def test_time_stops_for_an_announced_thread() -> None:
    async def main() -> tuple[str, float]:
        loop = running_loop()
        answer: asyncio.Future[str] = loop.create_future()
        asked = threading.Event()
        busy = threading.Event()

        def serve() -> None:
            asked.wait(5)
            loop.call_soon_threadsafe(answer.set_result, "synced")
            busy.clear()

        loop.hold_while(busy.is_set)
        worker = threading.Thread(target=serve)
        worker.start()
        busy.set()
        threading.Timer(0.05, asked.set).start()
        async with asyncio.timeout(5):
            result = await answer
        worker.join()
        return result, loop.time()

    assert run(main()) == ("synced", 0.0)


def test_an_unannounced_thread_is_waited_for_if_nothing_else_can_run() -> None:
    async def main() -> str:
        loop = running_loop()
        answer: asyncio.Future[str] = loop.create_future()
        threading.Timer(0.05, loop.call_soon_threadsafe, (answer.set_result, "late")).start()
        return await answer

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(main()) == "late"


def test_time_continues_for_a_thread_that_is_stalled_on_purpose() -> None:
    release = threading.Event()

    async def main() -> float:
        loop = running_loop()
        loop.count_stalled(lambda: 1 if not release.is_set() else 0)
        job = asyncio.create_task(asyncio.to_thread(release.wait, 5))
        await asyncio.sleep(30)
        release.set()
        await job
        return loop.time()

    assert run(main()) == 30.0


def test_real_sockets_answer_before_time_jumps() -> None:
    async def main() -> tuple[bytes, float]:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readline())
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            async with asyncio.timeout(10):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"hello\n")
                answer = await reader.readline()
                writer.close()
                await writer.wait_closed()
        return answer, running_loop().time()

    assert run(main()) == (b"hello\n", 0.0)


def test_a_silent_socket_neither_hangs_nor_uses_the_processor() -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_recv(ours, 1)
        finally:
            ours.close()
            theirs.close()

    clock_reads = 0

    class CountingLoop(VirtualLoop):
        def time(self) -> float:
            nonlocal clock_reads
            clock_reads += 1
            return super().time()

    with pytest.raises(Stuck), asyncio.Runner(loop_factory=lambda: CountingLoop(patience_s=0.05)) as runner:
        runner.run(main())

    assert clock_reads < 50


def test_a_socket_that_answers_from_outside_is_waited_for() -> None:
    async def main() -> bytes:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        answering = threading.Timer(0.05, theirs.send, (b"!",))
        answering.start()
        try:
            return await asyncio.get_running_loop().sock_recv(ours, 1)
        finally:
            answering.join()
            ours.close()
            theirs.close()

    assert run(main()) == b"!"


def test_a_pause_with_a_silent_socket_jumps_after_a_short_real_wait() -> None:
    async def main() -> float:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        waiting = asyncio.create_task(asyncio.get_running_loop().sock_recv(ours, 1))
        await asyncio.sleep(120)
        waiting.cancel()
        await asyncio.wait([waiting])
        ours.close()
        theirs.close()
        return running_loop().time()

    assert run(main()) == 120.0
