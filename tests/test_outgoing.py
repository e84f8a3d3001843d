from __future__ import annotations

import pytest
from yarl import URL

from proctor.outgoing import is_loopback, proxy_for, trusted


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("localhost:5000", True),
        ("127.3.2.1", True),
        ("127.3.2.1:80", True),
        ("[::1]:5000", True),
        ("::1", True),
        ("example.org", False),
        ("10.0.0.1:1", False),
    ],
)
def test_loopback_is_known(host, own):
    assert is_loopback(host) is own


def test_proxies_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://me:secret@proxy.example:3128")
    monkeypatch.setenv("http_proxy", "proxy.example:80")
    monkeypatch.setenv("NO_PROXY", "inside.example,other.example:5000")
    found = proxy_for(URL("https://registry.example/v2/"))
    assert found == URL("http://me:secret@proxy.example:3128")
    assert proxy_for(URL("http://registry.example/")) == URL("http://proxy.example:80")
    for inside in (
        "https://a.inside.example/",
        "https://other.example:5000/",
        "http://localhost:1/",
        "http://[::1]/",
    ):
        assert proxy_for(URL(inside)) is None


def names(ca_bundle: str = "") -> list[str]:
    return [str(each["subject"]) for each in trusted(ca_bundle).get_ca_certs()]


def test_the_bundle_is_trusted_besides_what_this_machine_trusts(with_tls, tmp_path, monkeypatch):
    certificate, _ = with_tls
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    assert names() == []
    assert "localhost" in "".join(names(str(certificate)))
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert "localhost" in "".join(names())


def test_a_bundle_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        trusted(str(tmp_path / "missing.pem"))
