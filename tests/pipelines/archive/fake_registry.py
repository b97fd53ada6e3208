"""A schema registry on loopback that answers by path."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class Schemas:
    """A registry on loopback: answers by path."""

    def __init__(self, answers: dict[str, Any], authorization: str | None = None) -> None:
        self.requested: list[str] = []
        schemas = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                schemas.requested.append(self.path)
                allowed = authorization is None or self.headers.get("Authorization") == authorization
                found = answers.get(self.path)
                self.send_response(401 if not allowed else 404 if found is None else 200)
                self.end_headers()
                self.wfile.write(json.dumps(found or {"error_code": 40403}).encode())

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"


@contextmanager
def registry(answers: dict[str, Any], authorization: str | None = None) -> Iterator[Schemas]:
    schemas = Schemas(answers, authorization)
    thread = Thread(target=schemas.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield schemas
    finally:
        schemas.server.shutdown()
        schemas.server.server_close()
        thread.join()
