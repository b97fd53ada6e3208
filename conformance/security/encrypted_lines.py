"""TLS with a certificate that the client checks: both clients, with our servers and with Apache's, and a server with an untrusted certificate."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.net.certificates import Certificate, make_authority, make_certificate

from conformance import apache
from conformance.apache import ApacheBroker
from conformance.programs import OurServer, drive
from conformance.python.against import OURS
from conformance.python.stage import Stage, Traits
from conformance.report import Scenario, Trial
from conformance.security.signatures import APACHE
from pocketmq.client import client_context
from pocketmq.errors import NetworkError

TALK_S: Final = 240
SENT_BY_JAVA: Final = 9
"""Messages of its conversation that are confirmed."""

PYTHON: Final = "Python: messages are sent and consumed over TLS, and the certificate is verified"
STRANGER: Final = "Python: a server whose certificate no known authority signed is not talked to"
JAVA: Final = "Java: sends over TLS, and checks the certificate"


class EncryptedStage(Stage):
    """A stage whose clients trust one authority."""

    def __init__(self, name_server: str, authority: Certificate) -> None:
        super().__init__(name_server, Traits())
        self._authority = authority

    def options(self) -> dict[str, object]:
        return {**super().options(), "tls": client_context(self._authority.cert)}


def _run(trial: Trial) -> None:
    authority = make_authority(trial.folder)
    certificate = make_certificate(trial.folder, authority)
    with _servers(trial, certificate) as name_server:
        stage = EncryptedStage(name_server, authority)
        asyncio.run(_talk(stage))
        trial.expect(PYTHON, stage.flaws)
        stranger = EncryptedStage(name_server, make_authority(trial.folder, "somebody else"))
        asyncio.run(_refuse(stranger))
        trial.expect(STRANGER, stranger.flaws)
        options = (
            "enable=true",
            "test.mode.enable=false",
            "client.authServer=true",
            f"client.trustCertPath={authority.cert}",
        )
        printed = drive(APACHE, name_server, "send", *(f"-Dtls.{option}" for option in options), timeout_s=TALK_S)
        (trial.folder / "send.txt").write_text(printed.text, "utf-8")
        count = printed.text.count("sendStatus=SEND_OK")
        trial.expect(
            JAVA,
            [] if count == SENT_BY_JAVA else [f"{count} messages instead of {SENT_BY_JAVA}: {printed.text[-300:]}"],
        )


@contextmanager
def _servers(trial: Trial, certificate: Certificate) -> Iterator[str]:
    if trial.version != OURS:
        options = ("test.mode.enable=false", f"server.certPath={certificate.cert}", f"server.keyPath={certificate.key}")
        java_options = [f"-Dtls.{option}" for option in options]
        with ApacheBroker(trial.version, trial.folder / "data", {}, trial.say, java_options=java_options) as theirs:
            yield theirs.name_server
        return
    port = apache.free_ports()
    ports = ("--namesrv-port", str(port), "--broker-port", str(port + 10))
    files = ("--tls-cert", str(certificate.cert), "--tls-key", str(certificate.key))
    with OurServer(trial.say, trial.folder, "serve", *ports, *files) as ours:
        yield ours.name_server


async def _talk(stage: Stage) -> None:
    topic = await stage.topic(queues=1)
    async with stage.producer() as producer, stage.lite(stage.name("CG")) as consumer:
        sent = await producer.send(topic, b"encrypted" * 2000)
        await consumer.subscribe(topic)
        got = await stage.comes("the message", lambda: consumer.poll(1))
    stage.same("offset", sent.queue_offset, 0)
    stage.same("body", [message.body for message in got], [b"encrypted" * 2000])


async def _refuse(stage: Stage) -> None:
    async with stage.producer(retries=0) as producer:
        await stage.refused("a send", NetworkError, producer.send("T", b"x", timeout_s=10))


SCENARIOS: Final = (Scenario("TLS", [PYTHON, STRANGER, JAVA], _run),)
