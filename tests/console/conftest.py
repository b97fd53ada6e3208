"""A cluster with content for every page, and consoles for it. Tests that change something use names of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.console.example_cluster import fill
from tests.console.visitor import Visitor, visitor

import pocketmq
from pocketmq.console.settings import ConsoleSettings

PASSWORD = "correct horse"
WEAK = "scrypt$2$1$1$73616c74$2501197cc8b7bb5be32e931a59c23b77b57d4cf962c38e8ced81fd31e71f773d"
"""Of that password, and quick to check."""


@pytest.fixture(scope="session")
def name_server() -> Iterator[str]:
    with pocketmq.Server() as server:
        fill(server.name_server)
        yield server.name_server


@pytest.fixture(scope="session")
def console(name_server: str) -> Iterator[Visitor]:
    """A user on this machine, where no login is required."""
    with visitor(ConsoleSettings(watched_s=0.2, cache_s=0.01), name_server) as made:
        made.wait_for("/letters", "payments-worker")
        yield made


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """`ada` may change things, `tim` may look; both have the password."""
    path = tmp_path / "users"
    path.write_text(f"ada:operator:{WEAK}\ntim:viewer:{WEAK}\n")
    path.chmod(0o600)
    return path
