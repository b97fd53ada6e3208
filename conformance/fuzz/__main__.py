"""Sends malformed frames to our servers and our client for some time.

python -m conformance.fuzz                        ten minutes
python -m conformance.fuzz --seconds 30
python -m conformance.fuzz --seed 7               the random numbers of an earlier run; the network may still behave differently
"""

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from conformance.fuzz.hostile import torment
from conformance.fuzz.servers import Broken, attack

SECONDS: Final = 600.0

Trial = Callable[[Path, float, int], Awaitable[str]]

TRIALS: Final[dict[str, Trial]] = {
    "servers without accounts": lambda folder, seconds, seed: attack(folder, seconds, seed, with_accounts=False),
    "servers with accounts": lambda folder, seconds, seed: attack(folder, seconds, seed, with_accounts=True),
    "the client and a hostile server": torment,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m conformance.fuzz", description="Sends malformed frames to servers and client."
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"the total time; by default {SECONDS:g}")
    parser.add_argument("--seed", type=int, default=random.randrange(2**31), help="the seed of the random numbers")
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}, {options.seconds:g} s")
    failed = False
    with tempfile.TemporaryDirectory(prefix="pocketmq-fuzz-") as folder:
        for number, (name, trial) in enumerate(TRIALS.items()):
            print(f"{name}: …", flush=True)
            try:
                report = asyncio.run(
                    _run(trial, Path(folder) / str(number), options.seconds / len(TRIALS), options.seed)
                )
                print(f"{name}: holds; {report}")
            except Broken as broken:
                failed = True
                print(f"{name}: BROKEN: {broken}")
    return 1 if failed else 0


async def _run(trial: Trial, folder: Path, seconds: float, seed: int) -> str:
    return await trial(folder, seconds, seed)


if __name__ == "__main__":
    sys.exit(main())
