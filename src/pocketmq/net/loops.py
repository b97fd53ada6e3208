"""The event loop that programs run on: uvloop's when it is installed, asyncio's otherwise."""

import asyncio

try:
    import uvloop
except ImportError:
    uvloop = None  # type: ignore[assignment]


def new_loop() -> asyncio.AbstractEventLoop:
    """For `asyncio.Runner(loop_factory=new_loop)`."""
    return asyncio.new_event_loop() if uvloop is None else uvloop.new_event_loop()
