"""A picture of every page in light, dark and narrow, small enough to be kept beside the documents."""

from pathlib import Path
from typing import Final, NamedTuple

from playwright.sync_api import Browser, Page

DOCS_IMAGES: Final = Path(__file__).parents[3] / "docs" / "images"
PAGES: Final = {
    "overview": "/",
    "topics": "/topics",
    "topic": "/topics/orders",
    "messages": "/topics/orders/messages",
    "groups": "/groups",
    "group": "/groups/analytics",
    "reset": "/groups/billing/reset?topic=orders&to=earliest",
    "dead-letters": "/letters/payments-worker",
    "delayed": "/delayed",
    "transactions": "/transactions",
    "pipelines": "/pipelines",
    "clients": "/clients",
    "brokers": "/brokers",
    "broker": "/brokers/broker-a",
    "doctor": "/doctor?run=1&topic=orders&group=billing",
}


class Look(NamedTuple):
    name: str
    width: int
    height: int
    scheme: str


LOOKS: Final = (
    Look("light", 1040, 720, "light"),
    Look("dark", 1040, 720, "dark"),
    Look("narrow", 390, 720, "light"),
)


def take_all(browser: Browser, url: str, more_pages: dict[str, str], folder: Path) -> list[Path]:
    """As the console is after it was looked at for a while."""
    taken = []
    for look in LOOKS:
        page = browser.new_page(
            viewport={"width": look.width, "height": look.height},
            color_scheme="dark" if look.scheme == "dark" else "light",
        )
        for name, path in {**PAGES, **more_pages}.items():
            page.goto(url.rstrip("/") + path)
            taken.append(_take(page, folder / f"console-{name}-{look.name}.png"))
        page.close()
    return taken


def _take(page: Page, path: Path) -> Path:
    page.wait_for_selector("#main h1")
    page.screenshot(path=path, animations="disabled")
    return path
