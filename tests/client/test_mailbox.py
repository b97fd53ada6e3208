"""The mailbox: everything arrives once and in order, whoever puts it in."""

import asyncio
import threading

from tests.net.talk import run_on, until

from pocketmq.client.mailbox import Mailbox


def test_what_threads_put_in_is_taken_out_on_the_loop_in_order() -> None:
    async def main() -> None:
        taken: list[tuple[int, int]] = []
        threads: set[int] = set()

        def take(thing: tuple[int, int]) -> None:
            threads.add(threading.get_ident())
            taken.append(thing)

        mailbox = Mailbox(asyncio.get_running_loop(), take)

        def put_all(number: int) -> None:
            for at in range(2000):
                mailbox.put((number, at))

        putters = [threading.Thread(target=put_all, args=(number,)) for number in range(4)]
        for putter in putters:
            putter.start()
        await until(lambda: len(taken) == 8000)
        for putter in putters:
            putter.join()

        assert threads == {threading.get_ident()}
        for number in range(4):
            assert [at for n, at in taken if n == number] == list(range(2000))

    run_on(asyncio.new_event_loop, main())


def test_one_that_cannot_be_taken_does_not_hold_up_the_others() -> None:
    async def main() -> None:
        taken: list[int] = []
        failures: list[dict[str, object]] = []

        def take(thing: int) -> None:
            if thing == 1:
                raise ValueError("not this one")
            taken.append(thing)

        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failures.append(context))
        mailbox = Mailbox(loop, take)
        for thing in range(4):
            mailbox.put(thing)
        await until(lambda: taken == [0, 2, 3])
        assert len(failures) == 1

    run_on(asyncio.new_event_loop, main())
