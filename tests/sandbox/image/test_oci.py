from __future__ import annotations

import gzip
import hashlib
import io
import tarfile

import pytest
import zstandard
from tests.sandbox.image.archives import docker_archive, host_layer, layer, oci_layout

from proctor.errors import ImageError, UsageError
from proctor.sandbox.image import layer_stream, oci
from proctor.sandbox.image.layered import LayeredImages
from proctor.sandbox.image.oci import import_image
from proctor.sandbox.image.references import normal

pytestmark = [pytest.mark.anyio, pytest.mark.needs("bubblewrap")]


@pytest.fixture
def roots(backend, images_dir) -> LayeredImages:
    return LayeredImages(images_dir, backend)


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("debian", "docker.io/library/debian:latest"),
        ("debian:12", "docker.io/library/debian:12"),
        ("me/tool", "docker.io/me/tool:latest"),
        ("localhost/x:1", "localhost/x:1"),
        ("host:5000/x", "host:5000/x:latest"),
        ("x@sha256:12", "docker.io/library/x@sha256:12"),
        ("docker.io/debian", "docker.io/library/debian:latest"),
        ("index.docker.io/me/tool:1", "docker.io/me/tool:1"),
    ],
)
async def test_names_are_made_whole(short, full):
    assert normal(short) == normal(full) == full


async def test_an_imported_image_is_the_base_of_a_dockerfile(roots, real_images, make_task, look, tmp_path):
    base, top = host_layer(), layer({"data/": None, "data/.wh.old": b"", "data/new": b"new"})
    old = layer({"data/": None, "data/old": b"old", "gone/": None, "gone/x": b"x"})
    whole = layer({"gone/": None, "gone/.wh..wh..opq": b"", "gone/y": b"y"})
    file = docker_archive(tmp_path / "image.tar", [base, old, top, whole], ["debian:12", "other/name:1"])
    imported = await import_image(roots.store, roots.references, file)
    assert [image.reference for image in imported] == [
        "docker.io/library/debian:12",
        "docker.io/other/name:1",
    ]

    root = await real_images.root(
        make_task("FROM debian:12\nENV MORE=1\nRUN cat /data/* > made; rm /gone/y\n")
    )
    assert (root.host, root.workdir, root.user) == (False, "/work", "root")
    assert root.env == {"PATH": "/bin", "FROM_IMAGE": "yes", "MORE": "1"}
    assert await look(root, "cat made; ls /data /gone") == "new/data:\nnew\n\n/gone:"
    prebuilt = await real_images.root(make_task(None, image="other/name:1"))
    assert await look(prebuilt, "ls /gone; ls /usr 2>&1; pwd") != ""
    assert len(prebuilt.layers) == 4


@pytest.mark.parametrize("nested", [False, True])
async def test_layouts_are_read_from_folders_and_files_and_share_layers(roots, tmp_path, nested):
    shared = layer({"a": b"1"})
    folder = oci_layout(tmp_path / "layout", [shared, layer({"b": b"2"})], "tool:1", nested=nested)
    (image,) = await import_image(roots.store, roots.references, folder)
    with tarfile.open(tmp_path / "layout.tar", "w") as out:
        out.add(folder, ".")
        out.add(folder / "index.json", "index.json")
        for blob in (folder / "blobs/sha256").iterdir():
            out.add(blob, f"blobs/sha256/{blob.name}")
    (again,) = await import_image(roots.store, roots.references, tmp_path / "layout.tar", name="again")
    assert again.layers == image.layers
    file = docker_archive(tmp_path / "image.tar", [shared], ["third"])
    (third,) = await import_image(roots.store, roots.references, file)
    assert third.layers[0] == image.layers[0]
    assert len(list(roots.store.layers.iterdir())) == 2


async def test_a_layer_that_is_not_what_its_digest_says_is_refused(roots, tmp_path):
    good, bad = layer({"a": b"1"}), layer({"a": b"2"})
    file = docker_archive(tmp_path / "image.tar", [good], ["x"])
    file.write_bytes(file.read_bytes().replace(good, bad))
    with pytest.raises(ImageError, match="another content"):
        await import_image(roots.store, roots.references, file)
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
        await import_image(roots.store, roots.references, file)
    assert not (tmp_path / "escape").exists()
    assert list(roots.store.layers.iterdir()) == []


async def test_a_layer_much_larger_than_a_pipe_that_ends_early_does_not_hang(roots, tmp_path):
    data = layer({"../up": b"x" * (4 << 20)})
    with pytest.raises(ImageError):
        await import_image(
            roots.store, roots.references, docker_archive(tmp_path / "image.tar", [data], ["x"])
        )
    padded = layer({"a": b"x"}) + bytes(4 << 20)
    assert await import_image(
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
            await import_image(
                roots.store, roots.references, docker_archive(tmp_path / name, [one], tags, **more)
            )
    (tmp_path / "junk").write_bytes(b"junk")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "index.json").symlink_to("/etc/passwd")
    for name in ("junk", "empty", "missing"):
        with pytest.raises((ImageError, UsageError), match=r"not an image (that can be read|archive)"):
            await import_image(roots.store, roots.references, tmp_path / name)


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
async def test_compressed_layers_are_unpacked_and_broken_ones_refused(roots, tmp_path, pack):
    data = layer({"a": b"1" * 100_000})
    file = docker_archive(tmp_path / "image.tar", [data], ["x"])
    with tarfile.open(file) as archive:
        kept = {member.name: (member, archive.extractfile(member)) for member in archive}
        contents = {name: opened.read() for name, (_, opened) in kept.items() if opened}

    async def imported(packed: bytes):
        name = f"{hashlib.sha256(data).hexdigest()}.tar"
        with tarfile.open(file, "w") as out:
            for member, _ in kept.values():
                content = packed if member.name == name else contents.get(member.name, b"")
                if not member.issym():
                    member.size = len(content)
                out.addfile(member, io.BytesIO(content) if member.isreg() else None)
        return await import_image(roots.store, roots.references, file)

    for broken in (pack(data)[:-20], pack(data)[:30] + bytes(30)):
        with pytest.raises(ImageError):
            await imported(broken)
    (image,) = await imported(
        pack(data[:50_000]) + pack(data[50_000:]) + bytes(100 * (pack is gzip.compress))
    )
    assert image.size_bytes == len(data)


async def test_a_layer_that_grows_beyond_measure_is_refused(roots, tmp_path, monkeypatch):
    monkeypatch.setattr(layer_stream, "_RATIO_FLOOR_BYTES", 1 << 20)
    data = layer({"a": bytes(8 << 20)})
    folder = oci_layout(tmp_path / "layout", [data], "tool:1")
    with pytest.raises(ImageError, match="bomb"):
        await import_image(roots.store, roots.references, folder)
    assert list(roots.store.layers.iterdir()) == []


async def test_several_images_in_one_file_are_refused(tmp_path):
    def opened(name: str):
        (tmp_path / "m").write_text("[{}, {}]")
        return (tmp_path / "m").open("rb")

    with pytest.raises(ImageError, match="one at a time"):
        oci.describe(opened, tmp_path)
