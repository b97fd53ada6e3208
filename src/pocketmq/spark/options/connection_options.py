"""Options for the connection and its credentials, the same for reading and writing.

Options appear in plans, checkpoints and Spark's pages, so no option contains a secret. It names an environment variable or a
file instead, and each process reads the secret there.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from pocketmq.errors import InvalidSetting
from pocketmq.files import Files
from pocketmq.spark.options.options import SWITCH, TEXT, Forbidden, Option, Use, at_most_one, whole

NAME_SERVER_VARIABLES: Final = ("NAMESRV_ADDR", "ROCKETMQ_NAMESRV_ADDR")
MAX_SECRET_BYTES: Final = 4096
_MAX_WAIT_MS: Final = 3_600_000


class Secret(msgspec.Struct, frozen=True):
    """The location of a secret. Its text shows the location, never the secret."""

    option: str
    variable: str | None = None
    path: str | None = None

    def read(self, environ: Mapping[str, str], files: Files) -> str:
        """The secret itself; InvalidSetting if it is missing."""
        if self.variable is not None:
            text = environ.get(self.variable, "")
            source = f"the environment variable {self.variable}"
        else:
            source = f"the file {self.path}"
            try:
                text = _read_file(files, Path(self.path or ""))
            except (OSError, UnicodeDecodeError) as error:
                raise InvalidSetting(f"the option {self.option}: cannot read {source}: {error}") from None
        if not text.strip():
            raise InvalidSetting(f"the option {self.option}: {source} is empty or missing on this machine")
        return text.strip()


def _read_file(files: Files, path: Path) -> str:
    with files.open(path, write=False) as file:
        return file.read_at(0, min(file.size(), MAX_SECRET_BYTES)).decode()


class Connection(msgspec.Struct, frozen=True):
    """Addresses, credentials and timeouts of the connection to the brokers. Each partition takes it to its executor."""

    name_servers: str
    namespace: str | None = None
    access_key: Secret | None = None
    secret_key: Secret | None = None
    security_token: Secret | None = None
    tls: bool = False
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    tls_verify: bool = True
    client_ip: str | None = None
    instance_name: str | None = None
    call_timeout_ms: int = 3_000
    connect_timeout_ms: int = 3_000


def _secret_rows(name: str, field: str, meaning: str) -> list[Option]:
    return [
        Option(f"rocketmq.{name}Env", f"{field}_env", TEXT, None, Use.ALL, f"the environment variable with {meaning}", "ROCKETMQ_" + field.upper()),
        Option(f"rocketmq.{name}File", f"{field}_file", TEXT, None, Use.ALL, f"the file with {meaning}", f"/run/secrets/{field}"),
    ]  # fmt: skip


CONNECTION_OPTIONS: Final = (
    Option("rocketmq.namesrv.addr", "name_servers", TEXT, None, Use.ALL, "name servers, separated by `;`; without it, the environment variable NAMESRV_ADDR of the driver", "ns1:9876;ns2:9876", ("nameServer",)),
    Option("rocketmq.namespace", "namespace", TEXT, None, Use.ALL, "the namespace of topics and groups", "team-a"),
    *_secret_rows("accessKey", "access_key", "the access key that requests are signed with"),
    *_secret_rows("secretKey", "secret_key", "the secret key"),
    *_secret_rows("securityToken", "security_token", "a security token"),
    Option("rocketmq.tls.enable", "tls", SWITCH, False, Use.ALL, "connect with TLS", "true"),
    Option("rocketmq.tls.caFile", "tls_ca_file", TEXT, None, Use.ALL, "certificate authorities for the servers' certificates; without it, those of the system", "/etc/mq/ca.pem"),
    Option("rocketmq.tls.certFile", "tls_cert_file", TEXT, None, Use.ALL, "the client certificate for servers that require one", "/etc/mq/client.pem"),
    Option("rocketmq.tls.keyFile", "tls_key_file", TEXT, None, Use.ALL, "the key of that certificate", "/etc/mq/client.key"),
    Option("rocketmq.tls.verify", "tls_verify", SWITCH, True, Use.ALL, "false does not verify the server's certificate", "true"),
    Option("rocketmq.clientIp", "client_ip", TEXT, None, Use.ALL, "the address in the ids of this client", "10.0.0.7"),
    Option("rocketmq.instanceName", "instance_name", TEXT, None, Use.ALL, "the name of this client, to distinguish clients on one machine", "spark"),
    Option("rocketmq.callTimeoutMs", "call_timeout_ms", whole(1, _MAX_WAIT_MS), 3_000, Use.ALL, "timeout for a request", "5000"),
    Option("rocketmq.connectTimeoutMs", "connect_timeout_ms", whole(1, _MAX_WAIT_MS), 3_000, Use.ALL, "timeout for connecting", "5000"),
)  # fmt: skip

_SECRETS: Final = (("accessKey", "access_key"), ("secretKey", "secret_key"), ("securityToken", "security_token"))

FORBIDDEN: Final = (
    *(
        Forbidden(
            f"rocketmq.{name}",
            f"it would appear in plans, checkpoints and pages; name an environment variable by rocketmq.{name}Env, "
            f"or a file by rocketmq.{name}File",
        )
        for name, _ in _SECRETS
    ),
    Forbidden("path", "a topic has no path; name the topic by the option subscribe to read, or topic to write"),
)


def connection_of(values: dict[str, Any], environ: Mapping[str, str]) -> Connection:
    """The connection that these values describe. Removes its fields from `values`."""
    own = {option.field: values.pop(option.field) for option in CONNECTION_OPTIONS}
    for name, field in _SECRETS:
        own[field] = _secret(name, own.pop(f"{field}_env"), own.pop(f"{field}_file"))
    if (own["access_key"] is None) != (own["secret_key"] is None):
        raise InvalidSetting(
            "an access key and a secret key are required together: set both rocketmq.accessKey… and rocketmq.secretKey…"
        )
    if own["security_token"] is not None and own["access_key"] is None:
        raise InvalidSetting("rocketmq.securityToken… needs rocketmq.accessKey… and rocketmq.secretKey…")
    files = own["tls_ca_file"], own["tls_cert_file"], own["tls_key_file"]
    if not own["tls"] and (any(files) or not own["tls_verify"]):
        raise InvalidSetting("options rocketmq.tls.… are set, but rocketmq.tls.enable is not true")
    if own["tls_key_file"] is not None and own["tls_cert_file"] is None:
        raise InvalidSetting("rocketmq.tls.keyFile needs rocketmq.tls.certFile")
    own["name_servers"] = own["name_servers"] or next(
        (environ[v] for v in NAME_SERVER_VARIABLES if environ.get(v)), None
    )
    if not own["name_servers"]:
        raise InvalidSetting(
            "no name server is set: set the option rocketmq.namesrv.addr, "
            f"or the environment variable {NAME_SERVER_VARIABLES[0]} of the driver"
        )
    return Connection(**own)


def _secret(name: str, variable: str | None, path: str | None) -> Secret | None:
    options = {f"rocketmq.{name}Env": variable, f"rocketmq.{name}File": path}
    at_most_one(options, [(option, option) for option in options])
    if variable is None and path is None:
        return None
    return Secret(f"rocketmq.{name}{'File' if variable is None else 'Env'}", variable, path)
