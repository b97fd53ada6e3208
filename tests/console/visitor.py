"""A user with a browser, simulated by Starlette's test client: it reads pages and submits their forms."""

import html
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

from httpx2 import Response
from starlette.testclient import TestClient

from pocketmq.client.settings import ClientOptions
from pocketmq.console.app import make_app
from pocketmq.console.settings import ConsoleSettings

HOST = "http://localhost:9878"


class Visitor:
    """Keeps the cookie as a browser does."""

    def __init__(self, client: TestClient) -> None:
        self.client = client

    def get(self, path: str, status: int = 200, **headers: str) -> str:
        answer = self.client.get(path, headers=headers, follow_redirects=False)
        assert answer.status_code == status, answer.text
        return answer.text

    def token(self, path: str = "/topics") -> str:
        """What a form of that page would send."""
        found = re.search(r'name="token" value="(\w+)"', self.get(path))
        assert found, "the page has no form"
        return found[1]

    def post(self, path: str, form: dict[str, str], *, page: str = "/topics") -> Response:
        """A form of that page."""
        return self.client.post(path, data={"token": self.token(page), **form}, follow_redirects=False)

    def done(self, path: str, form: dict[str, str], *, page: str = "/topics") -> str:
        """Submit a form that must be accepted; the next page as text."""
        answer = self.post(path, form, page=page)
        assert answer.status_code == 303, answer.text
        return text_of(self.get(answer.headers["location"]))

    def wait_for(self, path: str, words: str, seconds: float = 20) -> str:
        """Wait until the page shows it."""
        deadline = time.monotonic() + seconds
        while words not in (page := text_of(self.get(path))):
            assert time.monotonic() < deadline, f"{path} does not say {words!r}: {page}"
            time.sleep(0.05)
        return page

    def wait_for_row(self, path: str, pattern: str, seconds: float = 40) -> re.Match[str]:
        """Wait until such a row exists."""
        deadline = time.monotonic() + seconds
        while (found := re.search(pattern, page := text_of(self.get(path)))) is None:
            assert time.monotonic() < deadline, f"{path} does not show {pattern!r}: {page}"
            time.sleep(0.1)
        return found


@contextmanager
def visitor(settings: ConsoleSettings, name_server: str, options: ClientOptions | None = None) -> Iterator[Visitor]:
    app = make_app(settings, name_server, options or {})
    with TestClient(app, base_url=HOST) as client:
        yield Visitor(client)


def text_of(page: str) -> str:
    """The visible text: without tags, in one line."""
    body = re.sub(r"(?s)<(script|style|head)\b.*?</\1>", " ", page)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())
