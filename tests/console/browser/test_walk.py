"""Some pages of the console in Chromium; `make console-browser` visits all of them."""

import pytest

pytest.importorskip("playwright.sync_api", reason="needs playwright to drive a browser")

from playwright.sync_api import expect
from tests.console.browser.chromium import chromium, chromium_path
from tests.console.browser.traffic import traffic
from tests.console.browser.walk import Walk
from tests.console.running_console import running_console


@pytest.mark.skipif(chromium_path() is None, reason="there is no Chromium on this machine")
def test_a_topic_created_in_a_browser_appears_on_the_live_page(name_server: str) -> None:
    with traffic(name_server), running_console(name_server) as url, chromium() as browser:
        walk = Walk(browser.new_page(), url)

        walk.create_a_topic("smoke")
        walk.see_every_page()
        walk.go("/")

        expect(walk.page.locator("#pulse-text")).to_have_text("live", timeout=20_000)
        assert walk.complaints == []
