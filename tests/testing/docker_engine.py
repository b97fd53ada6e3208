"""A small engine that speaks Docker's protocol, and runs the command of a container as a process of this machine.

It knows what testcontainers asks for one container: create, start, inspect, logs, remove. The published port of the name server is the one
that the process chose.
"""

import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

ID = "c0ffee"


class DockerEngine:
    """`with DockerEngine(folder) as engine`: `engine.address` is for DOCKER_HOST, `engine.created` what was asked."""

    def __init__(self, folder: Path) -> None:
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer(*engine.read(self.path))

            def do_POST(self) -> None:
                size = int(self.headers.get("Content-Length", 0))
                self._answer(*engine.change(self.path, self.rfile.read(size)))

            def do_DELETE(self) -> None:
                engine.remove()
                self._answer(204, b"")

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._folder = folder
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._process: subprocess.Popen[bytes] | None = None
        self._ready: dict[str, Any] = {}
        self._printed = b""
        self.created: dict[str, Any] = {}
        self.address = f"tcp://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def read(self, path: str) -> tuple[int, bytes]:
        match re.sub(r"^/v[\d.]+", "", path).split("?")[0]:
            case "/version":
                return 200, json.dumps({"ApiVersion": "1.44", "Version": "25"}).encode()
            case "/info":
                return 200, b"{}"
            case found if found.endswith("/logs"):
                frame = bytes([1, 0, 0, 0]) + len(self._printed).to_bytes(4, "big") + self._printed
                return 200, frame if self._printed and "stdout=1" in path else b""
            case found if found.startswith("/containers/"):
                return 200, json.dumps(self._inspected()).encode()
        return 200, b"{}"

    def change(self, path: str, body: bytes) -> tuple[int, bytes]:
        if "/containers/create" in path:
            self.created = json.loads(body)
            return 201, json.dumps({"Id": ID, "Warnings": []}).encode()
        if path.endswith("/start"):
            self._start()
        return 204, b""

    def remove(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.communicate()

    def _start(self) -> None:
        variables = dict(text.split("=", 1) for text in self.created["Env"])
        command = [sys.executable, "-m", "pocketmq", *self.created["Cmd"], "--namesrv-port", "0"]
        environ = os.environ | variables | {"POCKETMQ_HOST": "127.0.0.1", "POCKETMQ_DATA": str(self._folder)}
        self._process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._printed = self._process.stdout.readline()
        self._ready = json.loads(self._printed)

    def _inspected(self) -> dict[str, Any]:
        mapped = dict.fromkeys(self.created.get("ExposedPorts", {}))
        if self._ready:
            port = self._ready["name_server"].rpartition(":")[2]
            mapped["9876/tcp"] = [{"HostIp": "127.0.0.1", "HostPort": port}]
        state = {"Status": "running" if self._process else "created", "Running": self._process is not None}
        return {
            "Id": ID,
            "Name": "/tested",
            "State": state,
            "Config": {"Tty": False, "Labels": {}, "Image": self.created.get("Image")},
            "NetworkSettings": {"Ports": mapped, "Networks": {}},
        }
