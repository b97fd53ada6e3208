"""axe-core on every page: it comes with a package of the test environment, and is never part of the console."""

from typing import Any

from playwright.sync_api import Page


def violations(page: Page) -> list[str]:
    """The findings of axe on the page, each with its first element."""
    from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]

    found: list[dict[str, Any]] = Axe().run(page).response["violations"]
    return [f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:160]}" for one in found]
