"""Frames that nobody should send, at our servers and at our client, for as long as asked.

python -m conformance.fuzz                        ten minutes
python -m conformance.fuzz --seconds 30
python -m conformance.fuzz --seed 7               the dice of an earlier run; what the network does with them differs
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
    "servers that ask nobody": lambda folder, seconds, seed: attack(folder, seconds, seed, with_accounts=False),
    "servers with accounts": lambda folder, seconds, seed: attack(folder, seconds, seed, with_accounts=True),
    "the client and a hostile server": torment,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m conformance.fuzz", description="Malformed frames, at both sides.")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"for all together; {SECONDS:g} if not given")
    parser.add_argument("--seed", type=int, default=random.randrange(2**31), help="of the dice")
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}, {options.seconds:g} s")
    failed = False
    with tempfile.TemporaryDirectory(prefix="pocketmq-fuzz-") as folder:
        for number, (name, trial) in enumerate(TRIALS.items()):
            print(f"{name}: …", flush=True)
            try:
                told = asyncio.run(_run(trial, Path(folder) / str(number), options.seconds / len(TRIALS), options.seed))
                print(f"{name}: holds; {told}")
            except Broken as broken:
                failed = True
                print(f"{name}: BROKEN: {broken}")
    return 1 if failed else 0


async def _run(trial: Trial, folder: Path, seconds: float, seed: int) -> str:
    return await trial(folder, seconds, seed)


if __name__ == "__main__":
    sys.exit(main())
