from __future__ import annotations

import pytest
from tests.sandbox.image.archives import ARCH, host_layer, layer
from tests.sandbox.image.registry.servers import HERE, Proxy

from proctor.errors import ImageError
from proctor.sandbox.image.manifest import Platform
from proctor.sandbox.image.registry.pull import Progress, pull

pytestmark = [pytest.mark.anyio, pytest.mark.needs("bubblewrap", "docker-registry")]


@pytest.mark.parametrize("kind", ["gzip", "docker-gzip", "zstd", "plain"])
async def test_an_image_is_pulled_by_tag_and_runs(roots, client, pusher, repository, look, kind):
    pushed = pusher.image(repository, "1", [host_layer(), layer({"data": b"yes"})], kind=kind)
    done = await pull(client, roots.store, roots.references, f"{pusher.host}/{repository}:1")
    assert done.image.digest == pushed["digest"]
    assert (done.image.source, done.image.platform, done.new_layers) == ("registry", HERE, 2)
    assert done.downloaded_bytes > 0
    assert done.image.pulled_at > 0
    assert done.image.size_bytes > 0
    root = roots._root_of(roots._image_base(done.image), (), done.image.settings)
    assert await look(root, "cat /data; pwd") == "yes/work"
    assert (root.image_name, root.image_digest) == (f"{pusher.host}/{repository}:1", pushed["digest"])
    assert list(roots.store.downloads.iterdir()) == []
    assert roots.references.find(f"{pusher.host}/{repository}@{pushed['digest']}") == done.image


async def test_an_image_is_pulled_by_digest_and_by_both(roots, client, pusher, repository):
    pushed = pusher.image(repository, "1", [layer({"a": b"1"})])
    name = f"{pusher.host}/{repository}"
    for reference in (f"{name}@{pushed['digest']}", f"{name}:gone@{pushed['digest']}"):
        done = await pull(client, roots.store, roots.references, reference)
        assert done.image.digest == pushed["digest"]
        assert roots.references.find(reference) == done.image


async def test_the_image_of_this_platform_is_chosen_from_a_list(roots, client, pusher, repository):
    own = pusher.image(repository, "", [layer({"a": b"own"})])
    other = pusher.image(repository, "", [layer({"a": b"other"})], architecture="s390x")
    pusher.index(repository, "1", {"linux/s390x": other, HERE: own, "unknown/unknown": other})
    name = f"{pusher.host}/{repository}:1"
    assert (await pull(client, roots.store, roots.references, name)).image.digest == own["digest"]
    foreign = await pull(client, roots.store, roots.references, name, platform=Platform(architecture="s390x"))
    assert (foreign.image.digest, foreign.image.platform) == (other["digest"], "linux/s390x")


async def test_a_platform_that_is_missing_is_said_with_those_that_are_there(
    roots, client, pusher, repository
):
    other = pusher.image(repository, "one", [layer({"a": b"1"})], architecture="s390x")
    pusher.index(repository, "many", {"linux/s390x": other, "linux/arm/v7": other, "unknown/unknown": other})
    with pytest.raises(ImageError, match=f"does not exist for {HERE}; available: linux/s390x, linux/arm/v7$"):
        await pull(client, roots.store, roots.references, f"{pusher.host}/{repository}:many")
    with pytest.raises(ImageError, match=f"does not exist for {HERE}; it is for linux/s390x"):
        await pull(client, roots.store, roots.references, f"{pusher.host}/{repository}:one")
    assert list(roots.references.all()) == []


async def test_a_second_image_on_the_same_base_downloads_only_what_is_new(roots, client, pusher, repository):
    base = layer({"base": bytes(100_000)})
    pusher.image(repository, "1", [base])
    pusher.image(repository, "2", [base, layer({"more": b"2"})])
    pusher.image(repository, "3", [base], config={"WorkingDir": "/other"})
    with Proxy(pusher.host) as proxy:
        for tag, new in (("1", 1), ("2", 1), ("3", 0), ("1", 0)):
            proxy.seen.clear()
            done = await pull(client, roots.store, roots.references, f"{proxy.host}/{repository}:{tag}")
            assert done.new_layers == new
            assert len(proxy.blobs()) == new + 1  # and the configuration
    assert done.downloaded_bytes == 0


async def test_layers_that_an_archive_brought_are_not_downloaded(roots, client, pusher, repository, tmp_path):
    from tests.sandbox.image.archives import docker_archive

    from proctor.sandbox.image.oci import import_image

    base = layer({"base": b"1"})
    await import_image(roots.store, roots.references, docker_archive(tmp_path / "x.tar", [base], ["x"]))
    pusher.image(repository, "1", [base])
    done = await pull(client, roots.store, roots.references, f"{pusher.host}/{repository}:1")
    assert (done.new_layers, done.downloaded_bytes) == (0, 0)


async def test_a_tag_that_moved_is_followed(roots, client, pusher, repository):
    name = f"{pusher.host}/{repository}:1"
    for content in (b"1", b"2"):
        pushed = pusher.image(repository, "1", [layer({"a": content})])
        assert (await pull(client, roots.store, roots.references, name)).image.digest == pushed["digest"]
    assert [image.digest for image in roots.references.all()] == [pushed["digest"]]


async def test_progress_counts_up_to_the_whole(roots, client, pusher, repository):
    pusher.image(repository, "1", [layer({"a": b"1"}), layer({"b": bytes(1_000_000)})], kind="plain")
    seen: list[tuple[int, int]] = []

    def told(progress: Progress) -> None:
        seen.append((progress.bytes, progress.done))

    done = await pull(
        client, roots.store, roots.references, f"{pusher.host}/{repository}:1", on_progress=told
    )
    assert seen[0] == (0, 0)
    assert seen == sorted(seen)
    assert seen[-1] == (done.downloaded_bytes, 2)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda each: {**each, "urls": ["http://127.0.0.1:1/x"]}, "foreign layer"),
        (lambda each: {**each, "mediaType": "application/vnd.oci.image.layer.v1.tar+lz4"}, "unknown kind"),
        (
            lambda each: {**each, "mediaType": "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"},
            "foreign layer",
        ),
        (lambda each: {**each, "digest": "sha512:" + "0" * 128}, "not a sha256 digest"),
        (lambda each: {**each, "size": -1}, "not a size"),
        (lambda each: {**each, "size": each["size"] - 1}, "sends more than"),
    ],
)
async def test_a_layer_that_cannot_be_trusted_is_refused(roots, client, pusher, repository, change, reason):
    pushed = pusher.image(repository, "1", [layer({"a": b"1"})])

    def rule(seen, answer):
        if "/manifests/" in seen.path:
            import json

            value = json.loads(answer.body)
            value["layers"] = [change(each) for each in value["layers"]]
            answer.body = json.dumps(value).encode()
            answer.headers.pop("docker-content-digest", None)

    with Proxy(pusher.host, rule) as proxy, pytest.raises(ImageError, match=reason):
        await pull(client, roots.store, roots.references, f"{proxy.host}/{repository}:1")
    assert pushed
    assert list(roots.references.all()) == []
    assert [each.name for each in roots.store.layers.iterdir()] == []


async def test_what_is_not_an_image_is_refused(roots, client, pusher, repository):
    blob = pusher.blob(repository, b"{}")
    chart = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.cncf.helm.config.v1+json", **blob},
        "layers": [],
    }
    pusher.manifest(repository, "chart", chart)
    with pytest.raises(ImageError, match=r"not a container image.*helm"):
        await pull(client, roots.store, roots.references, f"{pusher.host}/{repository}:chart")
    with pytest.raises(ImageError, match="no image of that name and tag"):
        await pull(client, roots.store, roots.references, f"{pusher.host}/{repository}:nothing")
    assert ARCH


async def test_a_hostile_layer_leaves_nothing(roots, client, pusher, repository, tmp_path):
    pusher.image(repository, "1", [layer({"../../escape": b"x" * (4 << 20)})])
    with pytest.raises(ImageError, match="cannot unpack"):
        await pull(client, roots.store, roots.references, f"{pusher.host}/{repository}:1")
    assert not (tmp_path / "escape").exists()
    assert list(roots.store.layers.iterdir()) == []


async def test_content_that_is_not_what_the_configuration_says_is_refused(roots, client, pusher, repository):
    pusher.image(
        repository, "1", [layer({"a": b"1"})], rootfs={"type": "layers", "diff_ids": [f"sha256:{'0' * 64}"]}
    )
    with pytest.raises(ImageError, match="another content"):
        await pull(client, roots.store, roots.references, f"{pusher.host}/{repository}:1")
    assert list(roots.store.layers.iterdir()) == []
