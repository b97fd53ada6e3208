"""TLS contexts: strict by default, and clear about what they cannot use."""

import ssl
from pathlib import Path

import pytest
from tests.net.certificates import Certificate, make_authority, make_certificate
from tests.net.talk import LOOPBACK, NewLoop, ask, echo, every_loop, run_on

from pocketmq.errors import ConnectFailed, InvalidSetting
from pocketmq.net.network import TcpNetwork
from pocketmq.net.peer import Peer
from pocketmq.net.server import Server
from pocketmq.net.tls import (
    ClientTlsFiles,
    ServerTls,
    ServerTlsFiles,
    TlsMode,
    client_context,
    pinned_context,
    server_context,
)


def test_a_client_verifies_the_server_and_its_name_unless_switched_off(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)

    strict, system, lax = client_context(authority.cert), client_context(), client_context(verify=False)

    assert (strict.verify_mode, strict.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert (system.verify_mode, system.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert (lax.verify_mode, lax.check_hostname) == (ssl.CERT_NONE, False)
    assert [authority.name in str(found["subject"]) for found in strict.get_ca_certs()] == [True]


def test_old_versions_of_tls_are_refused(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path, make_authority(tmp_path))

    for context in (client_context(), server_context(certificate.cert, certificate.key)):
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_server_requests_a_certificate_only_with_a_client_authority(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    certificate = make_certificate(tmp_path, authority)

    assert server_context(certificate.cert, certificate.key).verify_mode == ssl.CERT_NONE
    mutual = server_context(certificate.cert, certificate.key, client_ca=authority.cert)
    assert mutual.verify_mode == ssl.CERT_REQUIRED


def test_unusable_files_are_named(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path, make_authority(tmp_path))
    other = make_certificate(tmp_path, make_authority(tmp_path), name="other")
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("no certificate")

    with pytest.raises(InvalidSetting, match=r"missing\.crt"):
        server_context(tmp_path / "missing.crt", certificate.key)
    with pytest.raises(InvalidSetting, match=r"server\.crt with key .*other\.key"):
        server_context(certificate.cert, other.key)
    with pytest.raises(InvalidSetting, match=r"nonsense\.pem"):
        client_context(nonsense)
    with pytest.raises(InvalidSetting, match=r"nonsense\.pem"):
        server_context(certificate.cert, certificate.key, client_ca=nonsense)
    with pytest.raises(InvalidSetting, match=r"nonsense\.pem"):
        client_context(cert=nonsense)


def test_an_encrypted_key_is_refused_instead_of_asking_for_a_passphrase(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path, make_authority(tmp_path))
    encrypted = tmp_path / "encrypted.key"
    head, _, rest = certificate.key.read_text().partition("\n")
    encrypted.write_text(f"{head}\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,{'00' * 16}\n\n{rest}")

    with pytest.raises(InvalidSetting, match=r"encrypted\.key"):
        server_context(certificate.cert, encrypted)


# by files


def test_without_a_certificate_tls_is_off() -> None:
    assert ServerTlsFiles().load() is None
    assert ServerTlsFiles().in_use is TlsMode.DISABLED
    assert ClientTlsFiles().load() is None


def test_with_a_certificate_plain_text_is_refused_unless_permissive(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path, make_authority(tmp_path))
    files = ServerTlsFiles(cert=certificate.cert, key=certificate.key)
    permissive = ServerTlsFiles(cert=certificate.cert, key=certificate.key, mode=TlsMode.PERMISSIVE)
    switched_off = ServerTlsFiles(cert=certificate.cert, key=certificate.key, mode=TlsMode.DISABLED)

    loaded = files.load()

    assert loaded is not None
    assert loaded.mode is files.in_use is TlsMode.ENFORCING
    assert permissive.in_use is TlsMode.PERMISSIVE
    assert switched_off.load() is None


def test_contradicting_options_are_refused(tmp_path: Path) -> None:
    cert = tmp_path / "cert.pem"

    with pytest.raises(InvalidSetting, match="without a server certificate"):
        ServerTlsFiles(key=cert)
    with pytest.raises(InvalidSetting, match="without a server certificate"):
        ServerTlsFiles(client_ca=cert)
    with pytest.raises(InvalidSetting, match="cannot be required in permissive mode"):
        ServerTlsFiles(cert=cert, client_ca=cert, mode=TlsMode.PERMISSIVE)
    for given in ({"ca": cert}, {"cert": cert}, {"pinned": cert}, {"verify": False}):
        with pytest.raises(InvalidSetting, match="TLS is not enabled"):
            ClientTlsFiles(**given)
    with pytest.raises(InvalidSetting, match="a pinned certificate cannot be combined"):
        ClientTlsFiles(enabled=True, pinned=cert, verify=False)


def test_a_client_with_certificate_files_verifies_as_strictly(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)

    strict = ClientTlsFiles(enabled=True, ca=authority.cert).load()
    lax = ClientTlsFiles(enabled=True, verify=False).load()

    assert strict is not None
    assert (strict.verify_mode, strict.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert lax is not None
    assert lax.verify_mode == ssl.CERT_NONE


@pytest.mark.parametrize(
    "text", ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", "é"]
)
def test_an_invalid_pinned_certificate_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "pinned.pem").write_text(text)

    for path in ("pinned.pem", "missing.pem"):
        with pytest.raises(InvalidSetting, match=path.replace(".", r"\.")):
            pinned_context(tmp_path / path)


def chain(folder: Path, *certificates: Certificate) -> Path:
    path = folder / "chain.pem"
    path.write_text("".join(certificate.cert.read_text() for certificate in certificates))
    return path


@every_loop
def test_a_pinned_certificate_excludes_others_of_the_same_authority(new_loop: NewLoop, tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    right = make_certificate(tmp_path, authority, name="right", host="10.9.9.9")
    wrong = make_certificate(tmp_path, authority, name="wrong")
    context = pinned_context(chain(tmp_path, right, authority))

    async def said(certificate: Certificate) -> bytes:
        tls = ServerTls(server_context(certificate.cert, certificate.key), TlsMode.ENFORCING)
        async with Server(LOOPBACK, serve=echo, tls=tls) as server:
            client = Peer()
            await TcpNetwork().connect(lambda: client.connection, server.address, tls=context)
            answer = await client.call(ask(b"hello"))
            client.close()
            return answer.body

    async def main() -> None:
        assert await said(right) == b"hello"
        with pytest.raises(ConnectFailed, match="certificate of the server is not trusted"):
            await said(wrong)

    run_on(new_loop, main())
