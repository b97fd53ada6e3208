"""Apache's proxy, and the jars that it and the official Java client need: fetched once by Maven, like those of the servers."""

import hashlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from conformance import apache
from conformance.programs import WORK
from conformance.report import Say

HERE: Final = Path(__file__).parent
CACHE: Final = WORK.parent
PROXY: Final = ("org.apache.rocketmq", "rocketmq-proxy", "5.5.0")
CLIENT: Final = ("org.apache.rocketmq", "rocketmq-client-java", "5.2.0")
FETCH_S: Final = 1800
START_S: Final = 120
OPEN: Final = tuple(
    f"--add-{kind}=java.base/{package}=ALL-UNNAMED"
    for kind in ("exports", "opens")
    for package in ("java.lang", "java.nio", "java.util", "jdk.internal.misc", "jdk.internal.ref", "sun.nio.ch")
)


def unable() -> str:
    """Why the jars are not there; empty when they are."""
    try:
        for artifact in (PROXY, CLIENT):
            classpath(artifact)
    except (OSError, subprocess.SubprocessError) as error:
        return f"Maven could not bring the jars: {str(error).strip().splitlines()[-1]}"
    return ""


def classpath(artifact: tuple[str, str, str]) -> str:
    """The class path of an artifact with all that it needs."""
    group, name, version = artifact
    cached = CACHE / f"{name}-{version}.classpath"
    if not cached.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        part = CACHE / f"{cached.name}.{os.getpid()}"
        command = ["mvn", "-B", "-q", "-f", str(HERE / "pom.xml"), "-Dstyle.color=never"]
        command += [f"-Dsdk.group={group}", f"-Dsdk.artifact={name}", f"-Dsdk.version={version}"]
        command += ["dependency:build-classpath", f"-Dmdep.outputFile={part}"]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=FETCH_S)
        part.rename(cached)
    return cached.read_text().strip()


@contextmanager
def proxy(folder: Path, name_server: str, say: Say) -> Iterator[str]:
    """Apache's proxy in cluster mode; yields its address."""
    home = folder / "home" / "conf"
    home.mkdir(parents=True, exist_ok=True)
    port = apache.free_ports()
    settings = {
        "rocketMQClusterName": "DefaultCluster",
        "namesrvAddr": name_server,
        "grpcServerPort": port,
        "remotingListenPort": port + 1,
        "useEndpointPortFromRequest": True,
    }
    (home / "rmq-proxy.json").write_text(json.dumps(settings))
    say(f"starting Apache's proxy on port {port}")
    with (folder / "proxy.out").open("ab") as output:
        process = subprocess.Popen(
            [
                *("java", "-Xms64m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m", "-XX:+UseSerialGC", *OPEN),
                *("-Duser.home=.", "-Drocketmq.home.dir=home", "-cp", classpath(PROXY)),
                *("org.apache.rocketmq.proxy.ProxyStartup", "-n", name_server, "-pm", "cluster"),
                *("-pc", "home/conf/rmq-proxy.json"),
            ],
            cwd=folder,
            env={**os.environ, "ROCKETMQ_HOME": str(folder / "home")},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        _wait_for(port, process, folder / "proxy.out")
        yield f"127.0.0.1:{port}"
    finally:
        apache.kill_group(process.pid)
        process.wait()


def _wait_for(port: int, process: "subprocess.Popen[bytes]", output: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise apache.ApacheRefused(output.read_text(errors="replace")[-1000:])


def java_sdk() -> list[str]:
    """The command of Sdk.java, compiled if it has changed."""
    source, path = HERE / "Sdk.java", classpath(CLIENT)
    target = CACHE / f"sdk-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}"
    if not target.exists():
        part = CACHE / f"{target.name}.{os.getpid()}"
        command = ["javac", "-nowarn", "-Xlint:-options", "-cp", path, "-d", str(part), str(source)]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=FETCH_S)
        part.rename(target)
    work = CACHE / "work"
    return ["java", "-Xmx256m", "-XX:+UseSerialGC", f"-Duser.home={work}", "-cp", f"{target}{os.pathsep}{path}", "Sdk"]
