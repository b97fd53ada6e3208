"""How many logins an address may try, and in which order their passwords are checked."""

import asyncio

import pytest

from pocketmq.console.users import MAX_ADDRESSES, MAX_WAITING, LoginAttempts
from pocketmq.testing import FakeClock
from pocketmq.testing import run as run_virtual


async def log_in(attempts: LoginAttempts, peer: str, name: str, *, is_right: bool = False) -> bool:
    """Whether the password was checked, which takes a tenth of a second."""
    attempt = attempts.begin(peer, name)
    if attempt is None:
        return False
    async with attempts.turn(attempt):
        await asyncio.sleep(0.1)
        attempt.is_right = is_right
    return True


def test_parallel_attempts_count_from_their_beginning() -> None:
    async def scenario() -> list[bool]:
        attempts = LoginAttempts(FakeClock(), max_failures=10)
        return list(await asyncio.gather(*(log_in(attempts, "10.0.0.1", f"user{n}") for n in range(80))))

    assert sum(run_virtual(scenario())) == 10


def test_an_address_that_fails_too_often_waits_a_minute_and_others_do_not() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        attempts = LoginAttempts(clock, max_failures=2)
        assert await log_in(attempts, "10.0.0.1", "ada")
        assert await log_in(attempts, "10.0.0.1", "tim")

        assert not await log_in(attempts, "10.0.0.1", "ada", is_right=True)
        assert await log_in(attempts, "10.0.0.2", "ada")
        clock.advance_ms(61_000)
        assert await log_in(attempts, "10.0.0.1", "ada")

    run_virtual(scenario())


def test_a_login_that_succeeds_does_not_count() -> None:
    async def scenario() -> None:
        attempts = LoginAttempts(FakeClock(), max_failures=2)
        for _ in range(5):
            assert await log_in(attempts, "10.0.0.1", "ada", is_right=True)

    run_virtual(scenario())


def test_a_login_that_is_broken_off_counts_as_failed() -> None:
    async def scenario() -> None:
        attempts = LoginAttempts(FakeClock(), max_failures=1)
        trying = asyncio.create_task(log_in(attempts, "10.0.0.1", "ada", is_right=True))
        await asyncio.sleep(0.01)
        trying.cancel()
        await asyncio.gather(trying, return_exceptions=True)

        assert not await log_in(attempts, "10.0.0.1", "ada", is_right=True)

    run_virtual(scenario())


@pytest.mark.parametrize("peer", ["10.0.0.1", "10.0.0.2"])
def test_a_correct_login_is_quick_while_an_address_guesses(peer: str) -> None:
    """From another address, and from the same one by a user who logged in there before."""

    async def scenario() -> float:
        loop, attempts = asyncio.get_running_loop(), LoginAttempts(FakeClock(), max_failures=10)
        await log_in(attempts, peer, "ada", is_right=True)
        guesses = [asyncio.create_task(log_in(attempts, "10.0.0.1", f"user{n}")) for n in range(80)]
        await asyncio.sleep(0.05)
        began = loop.time()
        assert await log_in(attempts, peer, "ada", is_right=True)
        took = loop.time() - began
        await asyncio.gather(*guesses)
        return took

    assert run_virtual(scenario()) < 0.25


def test_guesses_from_many_addresses_wait_in_a_bounded_line() -> None:
    async def scenario() -> tuple[int, float]:
        loop, attempts = asyncio.get_running_loop(), LoginAttempts(FakeClock(), max_failures=10)
        await log_in(attempts, "10.0.0.1", "ada", is_right=True)
        guesses = [asyncio.create_task(log_in(attempts, f"10.1.0.{n}", "ada")) for n in range(200)]
        await asyncio.sleep(0.05)
        began = loop.time()
        assert await log_in(attempts, "10.0.0.1", "ada", is_right=True)
        took = loop.time() - began
        return sum(await asyncio.gather(*guesses)), took

    checked, took = run_virtual(scenario())
    assert checked == MAX_WAITING
    assert took < 0.25


def test_an_ipv6_client_counts_by_its_network() -> None:
    async def scenario() -> None:
        attempts = LoginAttempts(FakeClock(), max_failures=2)
        assert await log_in(attempts, "2001:db8::1", "ada")
        assert await log_in(attempts, "2001:db8::2", "ada")
        assert not await log_in(attempts, "2001:db8::3", "ada")
        assert await log_in(attempts, "2001:db8:0:1::1", "ada")
        assert await log_in(attempts, "::ffff:10.0.0.1", "ada")
        assert await log_in(attempts, "10.0.0.1", "ada")
        assert not await log_in(attempts, "10.0.0.1", "ada")

    run_virtual(scenario())


def test_the_oldest_addresses_are_removed_first() -> None:
    async def scenario() -> None:
        attempts = LoginAttempts(FakeClock(), max_failures=1)
        for number in range(MAX_ADDRESSES + 1):
            assert await log_in(attempts, f"peer {number}", "ada")

        assert not await log_in(attempts, f"peer {MAX_ADDRESSES}", "ada")
        assert await log_in(attempts, "peer 0", "ada")

    run_virtual(scenario())
