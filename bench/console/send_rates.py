"""The broker's highest send rate, with ten open browsers and without.

    none │ ten  ten │ none none │ ten  ten │ none …      windows of some seconds, alternating

Other load of the machine, and the growth of the broker's files, affect both kinds alike. The result is the median window of
each kind, with the broker's CPU time per message.
"""

import asyncio
import statistics
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from bench.broker.generators import Generator, Pace, best_generator
from bench.broker.servers import Target
from bench.broker.shots import NotMeasured, Shape, Shot
from bench.console.watchers import watchers

SHAPE: Final = Shape("send", connections=8, window=64, body_bytes=100)
"""More concurrent sends than the broker handles at once, so that it is never idle."""
WARM_S: Final = 0.3
SETTLE_S: Final = 2.0
"""The pause after the browsers have connected."""


class SendRates(NamedTuple):
    """The windows without browsers and with ten."""

    generator: str
    alone: Sequence[Shot]
    beside: Sequence[Shot]

    @property
    def fall(self) -> float:
        """The relative drop of the median rate with browsers."""
        return 1 - middle(self.beside) / middle(self.alone)

    @property
    def cpu_rise(self) -> float:
        """The relative rise of the broker's CPU time per message, over all windows."""
        return _server_us(self.beside) / _server_us(self.alone) - 1

    @property
    def noise(self) -> float:
        """The relative difference of two neighbouring windows without browsers."""
        rates = [shot.rate for shot in self.alone]
        return statistics.median(abs(1 - one / other) for one, other in pairwise(rates))

    def lines(self) -> list[str]:
        return [
            f"highest send rate ({SHAPE}; {self.generator}), {len(self.alone)} windows of each kind, alternating:",
            f"  no browsers           {middle(self.alone):9,.0f}/s, {_server_us(self.alone):.2f} us of CPU each",
            f"  ten browsers          {middle(self.beside):9,.0f}/s, {_server_us(self.beside):.2f} us of CPU each",
            f"  the rate drops by {self.fall:+.2%}, CPU time rises by {self.cpu_rise:+.2%}",
            f"  two neighbouring windows without browsers differ by {self.noise:.2%}",
        ]


async def send_rates(
    url: str, target: Target, topic: str, pages: Sequence[str], windows: int, seconds: float, folder: Path
) -> SendRates:
    """`windows` of each kind, an even number."""
    generator, _ = best_generator(folder)
    pace = Pace(seconds, WARM_S)
    await _shoot(generator, target, topic, pace)  # the first one finds new files and cold caches
    alone, beside = [await _shoot(generator, target, topic, pace)], list[Shot]()
    while len(beside) < windows:
        async with watchers(url, pages):
            await asyncio.sleep(SETTLE_S)
            beside += [await _shoot(generator, target, topic, pace) for _ in range(2)]
        more = min(2, windows - len(alone))
        alone += [await _shoot(generator, target, topic, pace) for _ in range(more)]
    return SendRates(generator.name, alone, beside)


async def _shoot(generator: Generator, target: Target, topic: str, pace: Pace) -> Shot:
    words = ("--topic", topic, "--queues", "4", "--no-create", "--no-verify")
    shot = await asyncio.to_thread(generator.fire, target, SHAPE, pace, *words)
    if shot.errors or shot.lost:
        raise NotMeasured(f"{shot.errors} sends were refused and {shot.lost} lost: {shot.first_error}")
    return shot


def middle(shots: Sequence[Shot]) -> float:
    return statistics.median(shot.rate for shot in shots)


def _server_us(shots: Sequence[Shot]) -> float:
    """Of one message, over all windows together."""
    return sum(shot.server_us * shot.rate for shot in shots) / sum(shot.rate for shot in shots)
