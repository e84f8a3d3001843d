from __future__ import annotations

import tarfile

import pytest
from tests.sandbox.image.archives import docker_archive, host_layer, layer, oci_layout

from proctor.errors import ImageError
from proctor.sandbox.image import oci
from proctor.sandbox.image.layered import LayeredRoots
from proctor.sandbox.image.oci import bring
from proctor.sandbox.image.references import normal

pytestmark = [pytest.mark.anyio, pytest.mark.needs("bubblewrap")]


@pytest.fixture
def roots(backend, images_dir) -> LayeredRoots:
    return LayeredRoots(images_dir, backend)


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("debian", "docker.io/library/debian:latest"),
        ("debian:12", "docker.io/library/debian:12"),
        ("me/tool", "docker.io/me/tool:latest"),
        ("localhost/x:1", "localhost/x:1"),
        ("host:5000/x", "host:5000/x:latest"),
        ("x@sha256:12", "docker.io/library/x@sha256:12"),
    ],
)
async def test_names_are_made_whole(short, full):
    assert normal(short) == normal(full) == full


async def test_an_imported_image_is_the_base_of_a_dockerfile(roots, images, make_task, look, tmp_path):
    base, top = host_layer(), layer({"data/": None, "data/.wh.old": b"", "data/new": b"new"})
    old = layer({"data/": None, "data/old": b"old", "gone/": None, "gone/x": b"x"})
    whole = layer({"gone/": None, "gone/.wh..wh..opq": b"", "gone/y": b"y"})
    file = docker_archive(tmp_path / "image.tar", [base, old, top, whole], ["debian:12", "other/name:1"])
    brought = await bring(roots.store, roots.references, file)
    assert [image.reference for image in brought] == ["docker.io/library/debian:12", "docker.io/other/name:1"]

    root = await images.root(make_task("FROM debian:12\nENV MORE=1\nRUN cat /data/* > made; rm /gone/y\n"))
    assert (root.host, root.workdir, root.user) == (False, "/work", "root")
    assert root.env == {"PATH": "/bin", "FROM_IMAGE": "yes", "MORE": "1"}
    assert await look(root, "cat made; ls /data /gone") == "new/data:\nnew\n\n/gone:"
    prebuilt = await images.root(make_task(None, image="other/name:1"))
    assert await look(prebuilt, "ls /gone; ls /usr 2>&1; pwd") != ""
    assert len(prebuilt.layers) == 4


@pytest.mark.parametrize("nested", [False, True])
async def test_layouts_are_read_from_folders_and_files_and_share_layers(roots, tmp_path, nested):
    shared = layer({"a": b"1"})
    folder = oci_layout(tmp_path / "layout", [shared, layer({"b": b"2"})], "tool:1", nested=nested)
    (image,) = await bring(roots.store, roots.references, folder)
    with tarfile.open(tmp_path / "layout.tar", "w") as out:
        out.add(folder, ".")
        out.add(folder / "index.json", "index.json")
        for blob in (folder / "blobs/sha256").iterdir():
            out.add(blob, f"blobs/sha256/{blob.name}")
    (again,) = await bring(roots.store, roots.references, tmp_path / "layout.tar", name="again")
    assert again.layers == image.layers
    file = docker_archive(tmp_path / "image.tar", [shared], ["third"])
    (third,) = await bring(roots.store, roots.references, file)
    assert third.layers[0] == image.layers[0]
    assert len(list(roots.store.layers.iterdir())) == 2


async def test_a_layer_that_is_not_what_its_digest_says_is_refused(roots, tmp_path):
    good, bad = layer({"a": b"1"}), layer({"a": b"2"})
    file = docker_archive(tmp_path / "image.tar", [good], ["x"])
    file.write_bytes(file.read_bytes().replace(good, bad))
    with pytest.raises(ImageError, match="another content"):
        await bring(roots.store, roots.references, file)
    assert list(roots.store.layers.iterdir()) == []
    assert list(roots.references.all()) == []


@pytest.mark.parametrize(
    "files",
    [{"../../escape": b"x"}, {"a": b"", "a/b": b"x"}, {"x/.wh...": b""}],
    ids=["up", "through", "mark"],
)
async def test_a_hostile_layer_is_refused_and_leaves_nothing(roots, tmp_path, files):
    file = docker_archive(tmp_path / "image.tar", [layer(files)], ["x"])
    with pytest.raises(ImageError, match="cannot unpack"):
        await bring(roots.store, roots.references, file)
    assert not (tmp_path / "escape").exists()
    assert list(roots.store.layers.iterdir()) == []


async def test_a_layer_much_larger_than_a_pipe_that_ends_early_does_not_hang(roots, tmp_path):
    data = layer({"../up": b"x" * (4 << 20)})
    with pytest.raises(ImageError):
        await bring(roots.store, roots.references, docker_archive(tmp_path / "image.tar", [data], ["x"]))
    padded = layer({"a": b"x"}) + bytes(4 << 20)
    assert await bring(
        roots.store, roots.references, docker_archive(tmp_path / "padded.tar", [padded], ["x"])
    )


async def test_unreadable_files_are_refused_with_a_reason(roots, tmp_path):
    one = layer({"a": b"1"})
    wrong = {
        "no-tags": ([], {}),
        "machine": (["x"], {"architecture": "z80"}),
        "count": (["x"], {"rootfs": {"diff_ids": []}}),
        "digest": (["x"], {"rootfs": {"diff_ids": ["md5:1"]}}),
    }
    for name, (tags, more) in wrong.items():
        with pytest.raises(ImageError):
            await bring(roots.store, roots.references, docker_archive(tmp_path / name, [one], tags, **more))
    (tmp_path / "junk").write_bytes(b"junk")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "index.json").symlink_to("/etc/passwd")
    for name in ("junk", "empty", "missing"):
        with pytest.raises(ImageError, match="not an image that can be read"):
            await bring(roots.store, roots.references, tmp_path / name)


async def test_zstd_layers_are_refused_with_the_way_out(roots, tmp_path):
    file = docker_archive(tmp_path / "image.tar", [b"\x28\xb5\x2f\xfd" + bytes(600)], ["x"])
    with pytest.raises(ImageError, match="docker-archive"):
        await bring(roots.store, roots.references, file)


async def test_several_images_in_one_file_are_refused(tmp_path):
    def opened(name: str):
        (tmp_path / "m").write_text("[{}, {}]")
        return (tmp_path / "m").open("rb")

    with pytest.raises(ImageError, match="one at a time"):
        oci.describe(opened, tmp_path)
