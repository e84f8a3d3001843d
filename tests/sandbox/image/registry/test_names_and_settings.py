from __future__ import annotations

import pytest

from proctor.errors import UsageError
from proctor.sandbox.image.references import parse
from proctor.sandbox.image.registry.access import access_of, endpoints
from proctor.settings import Settings

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "host", "whole"),
    [
        ("ubuntu:24.04", "registry-1.docker.io", "docker.io/library/ubuntu:24.04"),
        ("me/tool", "registry-1.docker.io", "docker.io/me/tool:latest"),
        ("docker.io/ubuntu", "registry-1.docker.io", "docker.io/library/ubuntu:latest"),
        ("ghcr.io/a/b/c:v1", "ghcr.io", "ghcr.io/a/b/c:v1"),
        (f"x@{DIGEST}", "registry-1.docker.io", f"docker.io/library/x@{DIGEST}"),
        (f"host:5000/x:1@{DIGEST}", "host:5000", f"host:5000/x:1@{DIGEST}"),
        ("[::1]:5000/x", "[::1]:5000", "[::1]:5000/x:latest"),
    ],
)
def test_a_name_is_taken_apart(text, host, whole):
    assert parse(text).host == host
    assert str(parse(text)) == whole


def test_a_digest_counts_more_than_a_tag():
    assert parse(f"x:1@{DIGEST}").version == DIGEST


@pytest.mark.parametrize(
    "text",
    ["", " x", "Upper", "a//b", "x:", "x:-1", "x:" + "y" * 129, "x@sha256:12", "x@md5:" + "a" * 32, "a/../b",
     "host:99999999/x", "http://host/x", "x y", "h.o/" + "a" * 256, "user:pw@host/x", "-x.io/y", "x\n"],
)  # fmt: skip
def test_what_is_not_a_name_is_refused(text):
    with pytest.raises(UsageError, match="is not the name of an image"):
        parse(text)


def test_mirrors_come_first_and_loopback_may_do_without_tls():
    settings = Settings(
        registry_mirrors=("docker.io=127.0.0.1:5000", "docker.io=mirror.example/hub/cache", "ghcr.io=m:1"),
        plain_http_registries=("plain.example:5000",),
    )
    access = access_of(settings)
    first, second, origin = endpoints(access, parse("ubuntu"))
    assert (first.host, first.schemes, first.is_mirror) == ("127.0.0.1:5000", ("http", "https"), True)
    assert (second.host, second.prefix, second.schemes) == ("mirror.example", "hub/cache", ("https",))
    assert (origin.host, origin.registry, origin.is_mirror) == ("registry-1.docker.io", "docker.io", False)
    assert endpoints(access, parse("plain.example:5000/x"))[0].schemes == ("http",)


@pytest.mark.parametrize("text", ["mirror", "=x", "a=", "a=http://x", "a=b c", "a=u:p@h"])
def test_a_mirror_that_is_not_written_as_one_is_refused(text):
    with pytest.raises(UsageError, match="registry_mirrors"):
        access_of(Settings(registry_mirrors=(text,)))
