"""Registries that want to know who asks."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.sandbox.image.archives import layer
from tests.sandbox.image.registry.conftest import QUICK
from tests.sandbox.image.registry.servers import (
    HTPASSWD,
    PASSWORD,
    Answer,
    Proxy,
    Pusher,
    Seen,
    registry,
    request,
)

from proctor.errors import ImageError
from proctor.sandbox.image.registry.access import Access
from proctor.sandbox.image.registry.client import Client
from proctor.sandbox.image.registry.pull import pull

pytestmark = [pytest.mark.anyio, pytest.mark.needs("bubblewrap", "docker-registry")]
BASIC = "Basic " + base64.b64encode(f"someone:{PASSWORD}".encode()).decode()
ONE = layer({"a": b"1"})


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
    """A registry with a password."""
    folder = tmp_path_factory.mktemp("closed")
    (folder / "htpasswd").write_text(HTPASSWD)
    auth = f"auth: {{htpasswd: {{realm: here, path: {folder / 'htpasswd'}}}}}\n"
    with registry(folder, auth) as host:
        Pusher(host=host, headers={"Authorization": BASIC}).image("secret", "1", [ONE])
        yield host


def save_login(file: Path, host: str, password: str = PASSWORD) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    auth = base64.b64encode(f"someone:{password}".encode()).decode()
    file.write_text(json.dumps({"auths": {host: {"auth": auth}}}))


@pytest.mark.parametrize("place", ["docker/config.json", "runtime/containers/auth.json"])
async def test_a_password_from_the_files_of_docker_and_podman_opens_a_registry(
    roots, client, closed, tmp_path, place
):
    save_login(tmp_path / place, closed)
    done = await pull(client, roots.store, roots.references, f"{closed}/secret:1")
    assert done.new_layers == 1


async def test_without_a_login_it_is_said_how_to_get_one(roots, client, closed):
    with pytest.raises(ImageError, match=rf"wants a login.*podman login {closed}.*docker login {closed}"):
        await pull(client, roots.store, roots.references, f"{closed}/secret:1")


async def test_a_wrong_password_is_refused_and_never_shown(roots, client, closed, tmp_path):
    save_login(tmp_path / "docker/config.json", closed, "wrong-word")
    with pytest.raises(
        ImageError, match=r"does not accept the credentials from .*docker/config.json"
    ) as caught:
        await pull(client, roots.store, roots.references, f"{closed}/secret:1")
    assert "wrong-word" not in str(caught.value)


@pytest.mark.parametrize("key", ["credHelpers", "credsStore"])
async def test_a_credential_helper_is_asked(roots, client, closed, tmp_path, monkeypatch, key):
    program = tmp_path / "bin/docker-credential-vault"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\n[ "$1" = get ] && cat > "$0.asked"\n'
        f'echo \'{{"Username": "someone", "Secret": "{PASSWORD}"}}\'\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin:/usr/sbin:/sbin")
    (tmp_path / "docker").mkdir()
    value = {closed: "vault"} if key == "credHelpers" else "vault"
    (tmp_path / "docker/config.json").write_text(json.dumps({key: value}))
    done = await pull(client, roots.store, roots.references, f"{closed}/secret:1")
    assert done.new_layers == 1
    assert Path(f"{program}.asked").read_text().strip() == closed


async def test_a_helper_that_is_missing_is_named(roots, client, closed, tmp_path):
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker/config.json").write_text(json.dumps({"credsStore": "desktop"}))
    with pytest.raises(ImageError, match="docker-credential-desktop, which is not on PATH"):
        await pull(client, roots.store, roots.references, f"{closed}/secret:1")


class Tokens:
    """A token service, and the rule of a proxy that lets only its tokens in."""

    def __init__(self, *, life_s: int = 300) -> None:
        self.given: list[str] = []
        self.life_s = life_s
        self.service = Proxy("", self.serve)
        self.forms: list[dict[str, list[str]]] = []

    def serve(self, seen: Seen, answer: Answer) -> None:
        query = parse_qs(urlsplit(seen.path).query or answer.body.decode())
        self.forms.append(query)
        answer.status = 200
        allowed = seen.headers.get("authorization") in {None, BASIC}
        if not allowed or query.get("refresh_token", ["right"]) != ["right"]:
            answer.status, answer.body = 401, b'{"errors": [{"message": "no"}]}'
            return
        self.given.append(f"token-{len(self.given)}")
        answer.body = json.dumps({"token": self.given[-1], "expires_in": self.life_s}).encode()

    def guard(self, seen: Seen, answer: Answer) -> None:
        if seen.headers.get("authorization") != f"Bearer {self.given[-1] if self.given else '-'}":
            answer.status, answer.body = 401, b""
            name = seen.path.split("/manifests/")[0].split("/blobs/")[0].removeprefix("/v2/")
            answer.headers["WWW-Authenticate"] = (
                f'Bearer realm="http://{self.service.host}/token",service="here",scope="repository:{name}:pull"'
            )


@pytest.mark.parametrize("login", ["none", "password", "identity"])
async def test_a_token_is_fetched_once_for_a_repository(roots, client, pusher, repository, tmp_path, login):
    pusher.image(repository, "1", [ONE, layer({"b": b"2"}), layer({"c": b"3"})])
    tokens = Tokens()
    with tokens.service, Proxy(pusher.host, tokens.guard) as proxy:
        if login == "password":
            save_login(tmp_path / "docker/config.json", proxy.host)
        elif login == "identity":
            (tmp_path / "docker").mkdir()
            entry = {proxy.host: {"identitytoken": "right"}}
            (tmp_path / "docker/config.json").write_text(json.dumps({"auths": entry}))
        done = await pull(client, roots.store, roots.references, f"{proxy.host}/{repository}:1")
    assert done.new_layers == 3
    assert len(tokens.given) == 1
    assert tokens.forms[0]["scope"] == [f"repository:{repository}:pull"]
    assert tokens.forms[0]["service"] == ["here"]
    sent = tokens.service.seen[0].headers.get("authorization")
    assert sent == (BASIC if login == "password" else None)
    assert ("grant_type" in tokens.forms[0]) == (login == "identity")


async def test_a_token_that_expired_is_replaced(roots, pusher, repository):
    pusher.image(repository, "1", [ONE])
    tokens = Tokens()
    async with Client(Access(patience=QUICK)) as client:
        with tokens.service, Proxy(pusher.host, tokens.guard) as proxy:
            name = f"{proxy.host}/{repository}:1"
            await pull(client, roots.store, roots.references, name)
            tokens.given.append("forget the one before")
            assert (await pull(client, roots.store, roots.references, name)).new_layers == 0
    assert len(tokens.given) == 3


async def test_a_token_service_that_refuses_a_login_is_said_without_the_secret(
    roots, client, pusher, repository, tmp_path
):
    tokens = Tokens()

    def echo(seen: Seen, answer: Answer) -> None:
        answer.status = 401
        answer.body = json.dumps(
            {"errors": [{"message": f"bad {seen.headers['authorization']} wrong"}]}
        ).encode()

    tokens.service.rule = echo
    with tokens.service, Proxy(pusher.host, tokens.guard) as proxy:
        save_login(tmp_path / "docker/config.json", proxy.host, "wrong")
        with pytest.raises(ImageError, match="does not accept the credentials") as caught:
            await pull(client, roots.store, roots.references, f"{proxy.host}/{repository}:1")
    assert "wrong" not in str(caught.value)
    assert BASIC[6:] not in str(caught.value)


async def test_a_redirect_to_another_host_does_not_get_the_credentials(roots, client, closed, tmp_path):
    with Proxy(closed) as other:

        def give(seen: Seen, answer: Answer) -> None:
            path = seen.path.removeprefix("/far")
            answer.status, _, answer.body = request(closed, "GET", path, headers={"Authorization": BASIC})
            answer.headers = {}

        other.rule = give

        def redirect(seen: Seen, answer: Answer) -> None:
            if "/blobs/" in seen.path and answer.status == 200:
                answer.status, answer.body = 307, b""
                answer.headers["Location"] = f"http://{other.host}/far{seen.path}"

        with Proxy(closed, redirect) as proxy:
            save_login(tmp_path / "docker/config.json", proxy.host)
            done = await pull(client, roots.store, roots.references, f"{proxy.host}/secret:1")
        assert done.new_layers == 1
        assert len(other.seen) == 2
        assert [each.headers.get("authorization") for each in other.seen] == [None, None]
        assert proxy.seen[-1].headers["authorization"] == BASIC


async def test_tls_is_spoken_where_the_certificate_is_trusted(
    roots, pusher, repository, with_tls, monkeypatch
):
    certificate, context = with_tls
    pusher.image(repository, "1", [ONE])
    with Proxy(pusher.host, tls=context) as proxy:
        async with Client(Access(patience=QUICK)) as client:
            with pytest.raises(ImageError, match=r"certificate that is not trusted.*SSL_CERT_FILE"):
                await pull(client, roots.store, roots.references, f"{proxy.host}/{repository}:1")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        async with Client(Access(patience=QUICK)) as client:
            done = await pull(client, roots.store, roots.references, f"{proxy.host}/{repository}:1")
            assert done.new_layers == 1
            tokens = Tokens()
            proxy.rule = tokens.guard
            with tokens.service, pytest.raises(ImageError, match="names a token service without TLS"):
                await pull(client, roots.store, roots.references, f"{proxy.host}/{repository}:1")

            def redirect(_seen: Seen, answer: Answer) -> None:
                answer.status, answer.headers = 302, {"Location": f"http://{pusher.host}/x"}

            proxy.rule = redirect
            with pytest.raises(ImageError, match="redirects to an address without TLS"):
                await pull(client, roots.store, roots.references, f"{proxy.host}/{repository}:1")


async def test_redirects_without_end_are_refused(roots, client, repository):
    def again(seen: Seen, answer: Answer) -> None:
        if seen.path != "/v2/":
            answer.status, answer.headers = 302, {"Location": seen.path}

    with Proxy("", again) as proxy, pytest.raises(ImageError, match="redirects too often"):
        await pull(client, roots.store, roots.references, f"{proxy.host}/{repository}:1")


async def test_a_proxy_of_the_environment_is_used(roots, pusher, repository, monkeypatch):
    pusher.image(repository, "1", [ONE])
    with Proxy(pusher.host) as proxy:
        monkeypatch.setenv("http_proxy", f"http://me:word@{proxy.host}")
        access = Access(patience=QUICK, plain_http=frozenset({"registry.invalid:5000"}))
        async with Client(access) as client:
            done = await pull(client, roots.store, roots.references, f"registry.invalid:5000/{repository}:1")
    assert done.new_layers == 1
    expected = "Basic " + base64.b64encode(b"me:word").decode()
    assert {each.headers["proxy-authorization"] for each in proxy.seen} == {expected}
    assert all(each.path.startswith("http://registry.invalid:5000/v2/") for each in proxy.seen)
