"""What a server asks registries for on behalf of projects: inside addresses, logins, and what is cached."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from tests.sandbox.image.archives import layer
from tests.sandbox.image.registry.conftest import QUICK
from tests.sandbox.image.registry.servers import HTPASSWD, Answer, Proxy, Pusher, Seen, registry
from tests.sandbox.image.registry.test_logins import BASIC, save_login

from proctor.errors import ImageError, UsageError
from proctor.outbound import Reach
from proctor.sandbox.base import RootOptions
from proctor.sandbox.image.layered import LayeredImages
from proctor.sandbox.image.registry.access import Access, access_of
from proctor.sandbox.image.registry.client import Client
from proctor.sandbox.image.registry.pull import pull
from proctor.settings import Settings

pytestmark = [pytest.mark.anyio, pytest.mark.needs("bubblewrap", "docker-registry")]
SECRET = layer({"secret": b"private content"})


def access(project: str | None, **settings: tuple[str, ...]) -> Access:
    return replace(access_of(Settings(**settings), project), patience=QUICK)


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
    """A registry with a password."""
    folder = tmp_path_factory.mktemp("closed")
    (folder / "htpasswd").write_text(HTPASSWD)
    auth = f"auth: {{htpasswd: {{realm: here, path: {folder / 'htpasswd'}}}}}\n"
    with registry(folder, auth) as host:
        Pusher(host=host, headers={"Authorization": BASIC}).image("acme/tool", "1", [SECRET])
        yield host


@pytest.fixture
def of_project(backend, images_dir):
    """The images of a run of a project, all in one cache."""

    def make(project: str | None, **settings: tuple[str, ...]) -> LayeredImages:
        images = LayeredImages(images_dir, backend, RootOptions(project=project))
        images.access = access(project, **settings)
        return images

    return make


async def test_a_project_cannot_name_a_registry_of_the_servers_network(roots, repository):
    with Proxy("") as inside:
        for host in (inside.host, f"localhost:{inside.host.partition(':')[2]}"):
            async with Client(access("team")) as client:
                with pytest.raises(ImageError, match=r"is not an address of the internet; `network_allow`"):
                    await pull(client, roots.store, roots.references, f"{host}/{repository}:1")
        assert inside.seen == []


async def test_registries_and_mirrors_of_the_settings_may_be_inside(roots, pusher, repository):
    pusher.image(repository, "1", [layer({"a": b"1"})])
    for settings in (
        {"plain_http_registries": (pusher.host,)},
        {"registry_mirrors": (f"nowhere.invalid={pusher.host}",)},
    ):
        name = "nowhere.invalid" if "registry_mirrors" in settings else pusher.host
        async with Client(access("team", **settings)) as client:
            await pull(client, roots.store, roots.references, f"{name}/{repository}:1")


@pytest.mark.parametrize("way", ["realm", "redirect"])
@pytest.mark.parametrize("who", ["a project", "a person"])
async def test_a_registry_cannot_send_requests_to_other_servers_inside(roots, repository, way, who):
    """The registry may be reached; the other server, on an address that nothing opens, may not."""
    with Proxy("") as inside:
        elsewhere = f"http://127.0.0.2:{inside.host.partition(':')[2]}/x"

        def send_on(seen: Seen, answer: Answer) -> None:
            answer.body = b""
            if way == "realm":
                answer.status = 401
                answer.headers["WWW-Authenticate"] = f'Bearer realm="{elsewhere}",service="x"'
            elif seen.path != "/v2/":
                answer.status, answer.headers["Location"] = 307, elsewhere

        with Proxy("", send_on) as proxy:
            if who == "a project":
                reached = access("team", plain_http_registries=(proxy.host,))
            else:
                reached = Access(patience=QUICK, reach=Reach(allow=("127.0.0.1",)))
            async with Client(reached) as client:
                with pytest.raises(ImageError, match=r"127\.0\.0\.2 is not an address of the internet"):
                    await pull(client, roots.store, roots.references, f"{proxy.host}/{repository}:1")
            assert proxy.seen != []
        assert inside.seen == []


async def test_the_servers_login_is_for_projects_that_it_was_granted_to(of_project, closed, tmp_path):
    save_login(tmp_path / "docker/config.json", closed)
    name = f"{closed}/acme/tool:1"
    plain = {"plain_http_registries": (closed,)}
    with pytest.raises(
        ImageError, match=r"wants a login.*to the project 'other' \(setting registry_logins\)"
    ):
        await of_project("other", **plain).image(name)
    for grant in (f"{closed}/acme/other=team", f"{closed}/acm=team", f"{closed}=another"):
        with pytest.raises(ImageError, match="wants a login"):
            await of_project("team", registry_logins=(grant,), **plain).image(name)
    granted = await of_project("team", registry_logins=(f"{closed}/acme=team",), **plain).image(name)
    assert granted.login == f"{closed}/acme"


async def test_a_private_image_that_is_here_is_not_given_to_other_projects(of_project, closed, tmp_path):
    save_login(tmp_path / "docker/config.json", closed)
    name = f"{closed}/acme/tool:1"
    plain = {"plain_http_registries": (closed,)}
    grants = {"registry_logins": (f"{closed}/acme=team",), **plain}
    image = await of_project("team", **grants).image(name)
    for wanted in (name, f"{closed}/acme/tool@{image.digest}"):
        with pytest.raises(ImageError, match="wants a login"):
            await of_project("other", **grants).image(wanted)
        assert (await of_project("team", **grants).image(wanted)).id == image.id
    assert (await of_project(None).image(name)).id == image.id, "a person of this machine has its logins"


async def test_a_private_layer_is_not_given_for_its_digest_alone(
    of_project, closed, pusher, repository, tmp_path
):
    """Another image may name the digest of a private layer: only who has the content gets it."""
    save_login(tmp_path / "docker/config.json", closed)
    grants = {"registry_logins": (f"{closed}/acme=team",), "plain_http_registries": (closed, pusher.host)}
    private = await of_project("team", **grants).image(f"{closed}/acme/tool:1")
    other = layer({"secret": b"something else"})

    def with_other_blob(entries):
        return [{**entries[0], **pusher.blob(repository, other)}]

    pusher.image(repository, "1", [SECRET], kind="plain", packed=with_other_blob)
    with pytest.raises(ImageError, match="another content"):
        await of_project("other", **grants).image(f"{pusher.host}/{repository}:1")
    pusher.image(repository, "2", [SECRET])
    public = await of_project("other", **grants).image(f"{pusher.host}/{repository}:2")
    assert public.layers == private.layers == (f"oci-{hashlib.sha256(SECRET).hexdigest()}",)


@pytest.mark.parametrize("text", ["ghcr.io", "=team", "ghcr.io=", "ghcr.io=a b", "https://ghcr.io=team"])
async def test_a_grant_that_is_not_written_as_one_is_refused(text):
    with pytest.raises(UsageError, match="setting 'registry_logins'"):
        access_of(Settings(registry_logins=(text,)))
