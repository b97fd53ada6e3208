"""Noticing that whoever started this program has gone: its input stream ends then."""

import asyncio
import sys


async def end_of_input() -> None:
    """Returns when the input stream ends: whoever started this program has gone, or has closed it."""
    ended = asyncio.Event()

    class Input(asyncio.Protocol):
        def connection_lost(self, reason: Exception | None) -> None:
            ended.set()

    transport, _ = await asyncio.get_running_loop().connect_read_pipe(Input, sys.stdin)
    try:
        await ended.wait()
    finally:
        transport.close()
