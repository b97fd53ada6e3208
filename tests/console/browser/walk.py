"""What a user does, in a real browser: creates a topic, sends, browses, resets with a preview, sends a dead letter again, sees a chart move."""

import re

from playwright.sync_api import ConsoleMessage, Page, Request, expect
from tests.console.browser.screenshots import PAGES

LETTER = "/letters/payments-worker/broker-a:0:3"


class Walk:
    """One browser page. Its errors, and its requests to other hosts, are recorded."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url.rstrip("/")
        self.complaints: list[str] = []
        page.on("console", self._note)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self._check)

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _check(self, request: Request) -> None:
        if not request.url.startswith(self.url):
            self.complaints.append(f"asks another host: {request.url}")

    def go(self, path: str) -> None:
        self.page.goto(self.url + path)

    def create_a_topic(self, name: str) -> None:
        self.go("/topics")
        self.page.locator("summary").click()
        self.page.get_by_label("Name", exact=True).fill(name)
        self.page.get_by_label("Queues per broker").fill("2")
        self.page.get_by_role("button", name="Create").click()
        expect(self.page.get_by_role("status")).to_contain_text(f"Created topic {name}.")

    def send_and_browse(self, topic: str) -> None:
        self.page.get_by_role("link", name="Messages", exact=True).click()
        self.page.locator("summary").click()
        form = self.page.locator("details")
        form.locator("textarea[name=body]").fill('{"from": "a browser", "html": "<b>bold</b>"}')
        form.get_by_label("Key").fill("walk-1")
        form.get_by_role("button", name="Send").click()
        expect(self.page.get_by_role("status")).to_contain_text("Sent message")
        self.page.locator("form.search input[name=key]").fill("walk-1")
        self.page.get_by_role("button", name="Search").click()
        self.page.locator("tbody a.id").first.click()
        expect(self.page.locator("pre.body")).to_contain_text("<b>bold</b>")
        self.page.get_by_role("link", name="hex", exact=True).click()
        expect(self.page.locator("pre.body")).to_contain_text("00000000")

    def reset_with_preview(self, group: str, topic: str) -> None:
        self.go(f"/groups/{group}")
        self.page.get_by_role("link", name="Reset offsets …").click()
        self.page.locator("input[name=topic]").fill(topic)
        self.page.locator("select[name=to]").select_option("earliest")
        self.page.get_by_role("button", name="Preview").click()
        expect(self.page.locator("main")).to_contain_text("Nothing has changed yet")
        self.page.get_by_role("button", name="Reset offsets", exact=True).click()
        expect(self.page.get_by_role("status")).to_contain_text("consumed again")

    def resend_a_dead_letter(self, path: str, topic: str) -> None:
        self.go(path)
        self.page.locator("input[name=topic]").fill(topic)
        body = self.page.locator("textarea[name=body]")
        if body.count():
            body.fill('{"payment": "fixed in a browser"}')
        self.page.get_by_role("button", name="Resend").click()
        expect(self.page.get_by_role("status")).to_contain_text("Sent the dead letter again")

    def see_a_chart_move(self) -> None:
        """By an update, without loading the page again."""
        self.go("/")
        first = self.page.locator(".chart path").first
        before = first.get_attribute("d")
        expect(first).not_to_have_attribute("d", before or "", timeout=20_000)
        expect(self.page.locator("#pulse-text")).to_have_text("live")

    def switch_colours(self) -> None:
        button = self.page.get_by_role("button", name=re.compile("colours"))
        button.click()
        theme = self.page.locator("html").get_attribute("data-theme")
        self.page.reload()
        expect(self.page.locator("html")).to_have_attribute("data-theme", theme or "")

    def use_the_keyboard(self) -> None:
        """The first stop skips the menu."""
        self.go("/topics")
        self.page.keyboard.press("Tab")
        expect(self.page.locator(".skip")).to_be_focused()
        self.page.keyboard.press("Enter")
        expect(self.page.locator("#main")).to_be_focused()

    def see_every_page(self) -> None:
        """Each answers, as it is, in a browser."""
        for path in PAGES.values():
            answer = self.page.goto(self.url + path)
            assert answer is not None, path
            assert answer.ok, f"{path}: {answer.status}"
            expect(self.page.locator("#main h1")).to_be_visible()

    def whole(self) -> None:
        self.see_every_page()
        self.create_a_topic("walked")
        self.send_and_browse("walked")
        self.reset_with_preview("billing", "orders")
        self.resend_a_dead_letter(LETTER, "walked")
        self.see_a_chart_move()
        self.switch_colours()
        self.use_the_keyboard()
