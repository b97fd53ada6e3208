"""Where Spark is to run: checked before it starts, because Spark itself takes more than a minute to give up on a wrong address.

--master local[…]            on this machine
         spark://host:port   one of its addresses must accept a connection
         yarn, k8s://…       found by their own configuration
--remote sc://host[:port]    must accept a connection
"""

import re
import socket
from collections.abc import Callable
from contextlib import closing
from typing import Final

from pocketmq.errors import InvalidSetting, NetworkError

CONNECT_S: Final = 3.0
CONNECT_PORT: Final = 15002
"""Of a Spark Connect server, if its address names none."""
_LOCAL: Final = re.compile(r"local(\[(\*|[1-9]\d*)(,[1-9]\d*)?\])?|local-cluster\[\d+,\d+,\d+\]")
_ELSEWHERE: Final = re.compile(r"yarn|k8s://.+")
_HOST: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/,;]+)(?::(?P<port>[0-9]{1,5}))?")

Connect = Callable[[str, int], None]


def connect(host: str, port: int) -> None:
    """OSError when nothing accepts a connection there."""
    with closing(socket.create_connection((host, port), CONNECT_S)):
        pass


def check_master(master: str | None, remote: str | None = None, connect: Connect = connect) -> None:
    """InvalidSetting for an address that cannot be, NetworkError for one that nothing answers at."""
    if remote is not None and master is not None:
        raise InvalidSetting("--master and --remote exclude one another: a Connect server has its master already")
    if remote is not None:
        where, _, _ = remote.removeprefix("sc://").partition("/")
        if not remote.startswith("sc://") or not (place := _place(where, CONNECT_PORT)):
            raise InvalidSetting(f"--remote {remote} is no address of a Spark Connect server: write sc://host:15002")
        _reach(f"--remote {remote}", [place], connect)
    elif master is not None and master.startswith("spark://"):
        places = [_place(text) for text in master.removeprefix("spark://").split(",")]
        if not all(places):
            raise InvalidSetting(f"--master {master} is no address of a Spark master: write spark://host:7077")
        _reach(f"--master {master}", [place for place in places if place], connect)
    elif master is not None and not (_LOCAL.fullmatch(master) or _ELSEWHERE.fullmatch(master)):
        raise InvalidSetting(
            f"--master {master} is no master of Spark: write local[*], local[4], spark://host:7077, yarn or k8s://https://host:443"
        )


def _place(text: str, usual_port: int | None = None) -> tuple[str, int] | None:
    match = _HOST.fullmatch(text)
    if match is None:
        return None
    port = int(match["port"]) if match["port"] else usual_port
    return (match["host"].strip("[]"), port) if port is not None and 0 < port < 65536 else None


def _reach(what: str, places: list[tuple[str, int]], connect: Connect) -> None:
    """One of several masters is enough: the others may stand by."""
    failures = []
    for host, port in places:
        try:
            connect(host, port)
        except OSError as error:
            failures.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return
    raise NetworkError(
        f"{what}: Spark does not answer there ({'; '.join(failures)}). Is it started, and is the address right?"
    )
