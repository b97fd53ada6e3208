"""From the options of a connection to the settings of a client, with the secrets that only this process looks up."""

from collections.abc import Mapping
from ssl import SSLContext
from typing import Final

from pocketmq.client.administration.reach import AdminSettings
from pocketmq.client.settings import DEFAULT_INSTANCE, ProducerOptions
from pocketmq.files import Files
from pocketmq.net.tls import client_context
from pocketmq.protocol.signing import Credentials
from pocketmq.spark.connection_options import Connection
from pocketmq.spark.write_options import WriteOptions

_NO_BOUND: Final = 2**62


def reading_settings(connection: Connection, environ: Mapping[str, str], files: Files) -> AdminSettings:
    """For the client that asks brokers and pulls."""
    return AdminSettings(
        name_servers=connection.name_servers,
        namespace=connection.namespace,
        credentials=_credentials(connection, environ, files),
        tls=_tls(connection),
        client_ip=connection.client_ip,
        instance_name=connection.instance_name or DEFAULT_INSTANCE,
        call_timeout_ms=connection.call_timeout_ms,
        connect_timeout_ms=connection.connect_timeout_ms,
    )


def producer_options(options: WriteOptions, environ: Mapping[str, str], files: Files) -> ProducerOptions:
    """For the producer of a sink, which decides itself what is sent again, and bounds what is on its way by batches."""
    connection = options.connection
    return ProducerOptions(
        namespace=connection.namespace,
        credentials=_credentials(connection, environ, files),
        tls=_tls(connection),
        client_ip=connection.client_ip,
        instance_name=connection.instance_name or DEFAULT_INSTANCE,
        call_timeout_ms=connection.call_timeout_ms,
        connect_timeout_ms=connection.connect_timeout_ms,
        group=options.group,
        send_timeout_ms=options.send_timeout_ms,
        retries=0,
        max_in_flight_messages=_NO_BOUND,
        max_in_flight_bytes=_NO_BOUND,
    )


def _credentials(connection: Connection, environ: Mapping[str, str], files: Files) -> Credentials | None:
    if connection.access_key is None or connection.secret_key is None:
        return None
    token = connection.security_token
    return Credentials(
        connection.access_key.read(environ, files),
        connection.secret_key.read(environ, files),
        None if token is None else token.read(environ, files),
    )


def _tls(connection: Connection) -> bool | SSLContext:
    if not connection.tls:
        return False
    return client_context(
        connection.tls_ca_file,
        cert=connection.tls_cert_file,
        key=connection.tls_key_file,
        verify=connection.tls_verify,
    )
