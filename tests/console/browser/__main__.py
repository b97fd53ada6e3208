"""`make console-browser`: visits every page of the console in Chromium, takes pictures, and checks accessibility with axe.

python -m tests.console.browser [--images DIR] [--watch-s N]
"""

import argparse
import sys
import time
from pathlib import Path

from playwright.sync_api import Browser
from tests.console.browser.accessibility import violations
from tests.console.browser.chromium import chromium, chromium_path
from tests.console.browser.screenshots import DOCS_IMAGES, LOOKS, PAGES, take_all
from tests.console.browser.traffic import traffic
from tests.console.browser.walk import LETTER, Walk
from tests.console.example_cluster import fill
from tests.console.running_console import running_console

import pocketmq


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, default=DOCS_IMAGES, help="where pictures go")
    parser.add_argument("--watch-s", type=float, default=60, help="how long charts grow before the pictures")
    given = parser.parse_args()
    if chromium_path() is None:
        sys.exit("there is no chromium on this machine: install Debian's package of that name")
    given.images.mkdir(parents=True, exist_ok=True)
    with pocketmq.Server() as server:
        fill(server.name_server)
        with running_console(server.name_server) as url, traffic(server.name_server), chromium() as browser:
            wrong = _walk(browser, url, given.watch_s) + _look(browser, url)
            taken = take_all(browser, url, {"dead-letter": LETTER, "message": _a_message(browser, url)}, given.images)
    megabytes = sum(path.stat().st_size for path in taken) / 1e6
    verdict = "\n".join(wrong) or "all pages work, and axe found no problem"
    sys.stdout.write(f"{len(taken)} pictures, {megabytes:.1f} MB, in {given.images}\n{verdict}\n")
    return 1 if wrong else 0


def _walk(browser: Browser, url: str, watch_s: float) -> list[str]:
    page = browser.new_page()
    walk = Walk(page, url)
    walk.whole()
    walk.go("/")
    time.sleep(watch_s)
    page.close()
    return walk.complaints


def _look(browser: Browser, url: str) -> list[str]:
    """With axe, at every page in every theme."""
    wrong = []
    for look in LOOKS:
        page = browser.new_page(
            viewport={"width": look.width, "height": look.height},
            color_scheme="dark" if look.scheme == "dark" else "light",
        )
        for path in [*PAGES.values(), LETTER, _a_message(browser, url)]:
            page.goto(url.rstrip("/") + path)
            wrong += [f"{path} ({look.name}): {one}" for one in violations(page)]
        page.close()
    return wrong


def _a_message(browser: Browser, url: str) -> str:
    page = browser.new_page()
    page.goto(f"{url}topics/payments/messages?key=nasty")
    path = page.locator("tbody a.id").first.get_attribute("href")
    page.close()
    assert path is not None
    return path


if __name__ == "__main__":
    sys.exit(main())
