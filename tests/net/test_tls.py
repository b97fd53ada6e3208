"""TLS contexts: strict by default, and clear about what they cannot use."""

import ssl
from pathlib import Path

import pytest
from tests.net.certificates import make_authority, make_certificate

from pocketmq.errors import InvalidSetting
from pocketmq.net.tls import client_context, server_context


def test_a_client_verifies_the_server_and_its_name_unless_told_otherwise(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)

    strict, system, lax = client_context(authority.cert), client_context(), client_context(verify=False)

    assert (strict.verify_mode, strict.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert (system.verify_mode, system.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert (lax.verify_mode, lax.check_hostname) == (ssl.CERT_NONE, False)
    assert [authority.name in str(found["subject"]) for found in strict.get_ca_certs()] == [True]


def test_old_versions_of_tls_are_not_spoken(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path, make_authority(tmp_path))

    for context in (client_context(), server_context(certificate.cert, certificate.key)):
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_server_asks_for_a_certificate_only_when_it_knows_who_may_sign_it(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    certificate = make_certificate(tmp_path, authority)

    assert server_context(certificate.cert, certificate.key).verify_mode == ssl.CERT_NONE
    mutual = server_context(certificate.cert, certificate.key, client_ca=authority.cert)
    assert mutual.verify_mode == ssl.CERT_REQUIRED


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
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


def test_an_encrypted_key_is_refused_instead_of_asking_on_the_terminal(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path, make_authority(tmp_path))
    encrypted = tmp_path / "encrypted.key"
    head, _, rest = certificate.key.read_text().partition("\n")
    encrypted.write_text(f"{head}\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,{'00' * 16}\n\n{rest}")

    with pytest.raises(InvalidSetting, match=r"encrypted\.key"):
        server_context(certificate.cert, encrypted)
