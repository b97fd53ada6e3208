"""Frameworks on top of the client: each module needs the extra of the same name, and `import pocketmq` imports none of them.

Modules in reading order:

    faststream/   RocketBroker for FastStream: subscribers, publishers, tests, middlewares, AsyncAPI, FastAPI
    taskiq        RocketBroker and RocketResults for taskiq
    kombu_queues  where the messages of kombu's queues come from
    celery        the transport `rocketmq://` for Celery and kombu
    fastapi       clients that start and stop with a FastAPI or Starlette application
"""

import re
from importlib.metadata import PackageNotFoundError, version

from pocketmq.errors import MissingLibrary, install_command, libraries_of

_REQUIREMENT = re.compile(r"(?P<name>[\w-]+)(\[[\w,]+\])?>=(?P<least>[\d.]+)(,<(?P<below>[\d.]+))?")


def require(extra: str) -> None:
    """MissingLibrary unless the framework of an extra is installed, in a version that this PocketMQ works with."""
    found = _REQUIREMENT.fullmatch(libraries_of(extra)[0])
    assert found is not None, "the form of the requirements of frameworks"
    name, least, below = found["name"], found["least"], found["below"]
    try:
        installed = version(name)
    except PackageNotFoundError:
        raise MissingLibrary(f"pocketmq.integrations.{extra} needs {name}; run {install_command(extra)}") from None
    if _numbers(installed) < _numbers(least) or (below is not None and _numbers(installed) >= _numbers(below)):
        suitable = f"{name} {least} or newer" + (f", but older than {below}" if below else "")
        raise MissingLibrary(
            f"pocketmq.integrations.{extra} works with {suitable}; {installed} is installed; run {install_command(extra)}"
        )


def _numbers(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: 0.8.0rc1 is (0, 8), above 0.7 and not below 0.8."""
    numbers = []
    for part in text.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
