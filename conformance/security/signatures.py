"""Signed requests only: what Apache's broker takes and refuses, ours takes and refuses, with the same code, from both clients.

signed rightly      taken
wrong secret        16, and nothing is stored
unknown key         16, and nothing is stored
not signed          16, and nothing is stored
"""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from conformance import apache
from conformance.apache import ApacheBroker
from conformance.programs import OurServer, drive
from conformance.python.against import OURS
from conformance.python.stage import Stage, Traits
from conformance.report import Scenario, Trial
from pocketmq.client import Credentials
from pocketmq.codes import ResponseCode
from pocketmq.errors import RemoteError

APACHE: Final = "5.3.3"
COLUMNS: Final = (OURS, APACHE)
KEY, SECRET = "pocketAccess", "pocketSecret12"
SIGNED_ONLY: Final = {
    "authenticationEnabled": "true",
    "authenticationProvider": "org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": f'{{"username":"{KEY}","password":"{SECRET}"}}',
    "innerClientAuthenticationCredentials": f'{{"accessKey":"{KEY}","secretKey":"{SECRET}"}}',
}
TALK_S: Final = 240
TOPIC: Final = "AclTopic"

TAKEN: Final = "Python: signed requests are accepted: send, consume, administrate"
REFUSED: Final = {
    "a wrong secret": Credentials(KEY, "anotherSecret12"),
    "an unknown key": Credentials("nobodyKnows", SECRET),
    "no signature": None,
}
JAVA: Final = "Java: signed requests are accepted, a wrong secret and a missing signature are refused with 16"


def _check(what: str) -> str:
    return f"Python: {what} is refused with 16, and nothing is stored"


class SignedStage(Stage):
    """A stage whose clients sign."""

    def options(self) -> dict[str, object]:
        return {**super().options(), "credentials": Credentials(KEY, SECRET)}


def _run(trial: Trial) -> None:
    with _servers(trial) as name_server:
        asyncio.run(_python(trial, name_server))
        printed = drive(APACHE, name_server, "acl", timeout_s=TALK_S)
        (trial.folder / "acl.txt").write_text(printed.text, "utf-8")
        trial.expect(JAVA, _flaws_of_java(printed.text))


@contextmanager
def _servers(trial: Trial) -> Iterator[str]:
    if trial.version != OURS:
        with ApacheBroker(trial.version, trial.folder, SIGNED_ONLY, trial.say) as theirs:
            yield theirs.name_server
        return
    accounts = trial.folder / "accounts.toml"
    accounts.write_text(f'[[account]]\naccess_key = "{KEY}"\nsecret = "{SECRET}"\nadmin = true\n')
    accounts.chmod(0o600)
    # As in Apache, the name server does not authenticate clients. With `pocketmq serve --accounts` both servers do.
    with OurServer.name_server_alone(trial.say, trial.folder / "nameserver") as name_server:
        ours = OurServer.broker(
            trial.say,
            trial.folder / "broker",
            "broker-a",
            name_server.name_server,
            {"autoCreateTopicEnable": "true"},
            ("--accounts", str(accounts)),
        )
        with ours:
            yield name_server.name_server


async def _python(trial: Trial, name_server: str) -> None:
    stage = SignedStage(name_server, Traits())
    topic = await stage.topic(queues=1)
    async with stage.producer() as producer, stage.lite(stage.name("CG")) as consumer:
        sent = await producer.send(topic, b"signed")
        await consumer.subscribe(topic)
        got = await stage.comes("the message", lambda: consumer.poll(1))
    stage.same("offset, body", (sent.queue_offset, [message.body for message in got]), (0, [b"signed"]))
    trial.expect(TAKEN, stage.flaws)
    for what, credentials in REFUSED.items():
        trial.expect(_check(what), await _flaws_of_refusal(stage, topic, credentials))


async def _flaws_of_refusal(stage: SignedStage, topic: str, credentials: Credentials | None) -> list[str]:
    before = len(await stage.stored(topic))
    producer = stage.producer(credentials=credentials, retries=0)
    try:
        async with producer:
            await producer.send(topic, b"refused")
    except RemoteError as error:
        if error.response_code != ResponseCode.NO_PERMISSION:
            return [f"refused with {error.response_code}: {error}"]
    else:
        return ["it was taken"]
    after = len(await stage.stored(topic))
    return [] if after == before else [f"{after - before} messages were stored"]


def _flaws_of_java(text: str) -> Iterator[str]:
    if f"topic={TOPIC}" not in text or "SEND_OK" not in text:
        yield f"the signed message was not stored: {text[-400:]}"
    for what in ("wrong secret", "no signature"):
        found = re.search(rf"^{what}: (.*?)(?=^no signature|\Z)", text, re.MULTILINE | re.DOTALL)
        if found is None:
            yield f"{what}: not tried"
        elif "CODE: 16" not in found[1]:
            yield f"{what}: {' '.join(found[1].split())[:200]}"


def unable(column: str) -> str:
    """The Java client is needed in any case."""
    return apache.unable(APACHE)


SCENARIOS: Final = (Scenario("signatures", [TAKEN, *map(_check, REFUSED), JAVA], _run),)
