"""Both twins of the hot path, Python's and the C one: a test module that requests `twin` runs once with each."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pocketmq import compiled

BOTH = ("python", "compiled")


@contextmanager
def using(name: str) -> Iterator[None]:
    """Objects created in the block use this twin."""
    chosen: compiled.Twin | None = None
    if name == "compiled":
        chosen = compiled_or_skip()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "_in_use", chosen)
        yield


def compiled_or_skip() -> compiled.Twin:
    if compiled.built is None:
        pytest.skip("the compiled twin was not built here: no C compiler, or POCKETMQ_PURE when it was installed")
    return compiled.built


@pytest.fixture(scope="module", params=BOTH)
def twin(request: pytest.FixtureRequest) -> Iterator[str]:
    with using(request.param):
        yield request.param
