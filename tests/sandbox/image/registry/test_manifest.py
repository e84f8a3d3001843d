from __future__ import annotations

import json

import pytest

from proctor.errors import ImageError, UsageError
from proctor.sandbox.image.manifest import (
    Blob,
    Index,
    Platform,
    choose,
    parse_platform,
    read_manifest,
)
from proctor.sandbox.image.registry.access import said_by_server
from proctor.sandbox.image.registry.authorization import parse_challenges
from proctor.sandbox.image.registry.client import retry_after_s

OCI = "application/vnd.oci.image."
DIGEST = "sha256:" + "a" * 64


def described(**more: object) -> dict[str, object]:
    return {"digest": DIGEST, "size": 5, **more}


def manifest(**more: object) -> bytes:
    value = {
        "schemaVersion": 2,
        "mediaType": f"{OCI}manifest.v1+json",
        "config": described(mediaType=f"{OCI}config.v1+json"),
        "layers": [described(mediaType=f"{OCI}layer.v1.tar")],
    }
    return json.dumps({**value, **more}).encode()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"no json", "cannot be read"),
        (b"[]", "cannot be read"),
        (b"{}", "unknown kind: none is given"),
        (b'{"schemaVersion": 1, "fsLayers": []}', "schema 1"),
        (manifest(mediaType="application/x"), "unknown kind: application/x"),
        (manifest(config=described(mediaType="application/vnd.x")), "not a container image"),
        (manifest(artifactType="application/sbom"), "not a container image.*sbom"),
        (manifest(layers=[described(mediaType=f"{OCI}layer.nondistributable.v1.tar")]), "foreign layer"),
        (manifest(layers=[described(mediaType=f"{OCI}layer.v1.tar", size=True)]), "not a size"),
        (manifest(layers=[described(mediaType=f"{OCI}layer.v1.tar")] * 200), "has 200 layers"),
        (manifest(layers=3), "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
    ],
)
def test_what_is_no_manifest_of_an_image_is_refused(body, reason):
    with pytest.raises(ImageError, match=reason):
        read_manifest(body)


def test_a_manifest_without_a_type_is_known_by_its_content():
    found = read_manifest(manifest(mediaType=None))
    assert found.layers == (Blob(digest="a" * 64, size=5),)
    index = read_manifest(json.dumps({"schemaVersion": 2, "manifests": [described()]}).encode())
    assert index.entries[0][0] == Platform(architecture="?")


def entries(*names: str) -> Index:
    return Index(
        entries=tuple(
            (parse_platform(each), Blob(digest=each, size=number)) for number, each in enumerate(names)
        )
    )


@pytest.mark.parametrize(
    ("there", "wanted", "chosen"),
    [
        (("linux/amd64/v3", "linux/amd64"), "linux/amd64", "linux/amd64"),
        (("linux/arm64/v9", "linux/arm64/v8"), "linux/arm64", "linux/arm64/v8"),
        (("linux/arm/v6", "linux/arm/v7"), "linux/arm/v7", "linux/arm/v7"),
        (("linux/arm/v6", "linux/arm"), "linux/arm/v7", "linux/arm"),
        (("windows/amd64", "linux/amd64/v2"), "linux/amd64", "linux/amd64/v2"),
    ],
)
def test_the_nearest_variant_is_chosen(there, wanted, chosen):
    assert choose(entries(*there), parse_platform(wanted)).digest == chosen


def test_no_platform_at_all_is_said():
    with pytest.raises(ImageError, match="available: none"):
        choose(Index(entries=()), parse_platform("linux/amd64"))


@pytest.mark.parametrize("text", ["", "linux", "linux/", "a/b/c/d", "linux/am d64"])
def test_what_is_no_platform_is_refused(text):
    with pytest.raises(UsageError, match="is not a platform"):
        parse_platform(text)


def test_challenges_are_read_and_bearer_is_preferred():
    assert parse_challenges(["Negotiate", ""]) is None
    headers = [
        'Basic realm="x"',
        'BEARER Realm="https://a/b?c=d,e",service=s , scope="repository:a/b:pull,push"',
    ]
    found = parse_challenges(headers)
    assert found.kind == "bearer"
    assert found.parameters == {
        "realm": "https://a/b?c=d,e",
        "service": "s",
        "scope": "repository:a/b:pull,push",
    }


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("", 0),
        ("7", 7),
        ("soon", 0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 90),
        ("Thu, 01 Jan 1970 00:00:01 GMT", 0),
    ],
)
def test_a_time_to_wait_is_read(text, seconds):
    assert retry_after_s(text, 10.0) == seconds


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>", ""),
        (b"{}", ""),
        (b'{"errors": []}', ""),
        (b'{"errors": [{"code": "DENIED"}]}', "DENIED"),
        (b'{"errors": [{"message": "your secret\\u001b[2J"}]}', "your [redacted] [2J"),
        (b'{"errors": ["x"]}', ""),
    ],
)
def test_what_a_server_says_is_made_fit_to_print(body, said):
    assert said_by_server(body, ("secret",)) == said
