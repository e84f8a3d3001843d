"""Addresses, certificates, and what the command says."""

from __future__ import annotations

import datetime as dt
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.server.conftest import running

from proctor.errors import UsageError
from proctor.server.serving import Address, Certificate


def certificate(folder: Path) -> tuple[Path, Path]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    paths = folder / "cert.pem", folder / "key.pem"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return paths


def test_a_port_that_somebody_has_is_refused():
    bound = Address(port=0).listen()
    bound.listen()
    with bound, pytest.raises(UsageError, match="choose another --port"):
        Address(port=bound.getsockname()[1]).listen()


def test_connections_send_the_body_of_an_answer_without_waiting():
    with Address(port=0).listen() as bound:
        bound.listen()
        with socket.create_connection(bound.getsockname()), bound.accept()[0] as connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_loopback_is_known_by_its_names():
    assert Address("localhost").loopback
    assert Address("::1").loopback
    assert Address("127.0.0.7").loopback
    assert not Address("0.0.0.0").loopback


def test_files_that_are_no_certificate_are_refused(tmp_path: Path):
    (tmp_path / "a").write_text("no")
    with pytest.raises(UsageError, match="not a certificate"):
        Certificate(tmp_path / "a", tmp_path / "a").check()
    done = subprocess.run(
        [sys.executable, "-m", "proctor.cli.main", "serve", "--tls-cert", "a"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "belong together" in done.stderr


def test_with_a_certificate_it_speaks_tls_and_asks_for_tokens(tmp_path: Path):
    cert, key = certificate(tmp_path)
    args = ("--tokens", "--tls-cert", str(cert), "--tls-key", str(key), "--allow-host", "bench.example")
    with running(tmp_path, *args) as server:
        assert server.address.startswith("https://")
        assert any("shown this once: pt_" in line for line in server.said)
        answer = server.client.get("/api/runs", headers={"Host": "bench.example"})
        assert answer.status_code == 401
        assert answer.headers["strict-transport-security"]
    with running(tmp_path, "--tokens") as again:
        assert not any("pt_" in line for line in again.said)
