"""Image files written by hand, small enough to read."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

ARCH = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)


def layer(files: dict[str, bytes | None]) -> bytes:
    """A layer's tar; a name with a slash at its end is a folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as out:
        for name, content in files.items():
            info = tarfile.TarInfo(name.rstrip("/"))
            info.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            info.mode = 0o755
            info.size = len(content or b"")
            out.addfile(info, io.BytesIO(content or b""))
    return buffer.getvalue()


def host_layer() -> bytes:
    """The programs that a shell script needs, with their libraries, from this machine."""
    files: dict[str, bytes | None] = {"bin/": None, "tmp/": None}
    for name in ("sh", "cat", "ls", "rm"):
        files[f"bin/{name}"] = Path(f"/bin/{name}").read_bytes()
    libraries = [Path("/lib64/ld-linux-x86-64.so.2")]
    for name in ("libc.so.6", "libselinux.so.1", "libpcre2-8.so.0"):
        libraries += Path("/lib").glob(f"*/{name}")
    for library in libraries:
        files[str(library).lstrip("/")] = library.read_bytes()
    return layer(files)


def config(layers: list[bytes], **more: Any) -> bytes:
    digests = [f"sha256:{hashlib.sha256(data).hexdigest()}" for data in layers]
    value = {
        "architecture": ARCH,
        "config": {"Env": ["PATH=/bin", "FROM_IMAGE=yes"], "WorkingDir": "/work", "User": ""},
        "rootfs": {"type": "layers", "diff_ids": digests},
    }
    return json.dumps({**value, **more}).encode()


def docker_archive(path: Path, layers: list[bytes], tags: list[str], **more: Any) -> Path:
    """What `podman save --format docker-archive` writes, with its links from one name to another."""
    made = config(layers, **more)
    names = [f"{hashlib.sha256(data).hexdigest()}.tar" for data in layers]
    manifest = [
        {"Config": "config.json", "RepoTags": tags, "Layers": [f"id{n}/layer.tar" for n in range(len(names))]}
    ]
    with tarfile.open(path, "w") as out:
        for name, data in [*zip(names, layers, strict=True), ("config.json", made)]:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))
        for number, name in enumerate(names):
            info = tarfile.TarInfo(f"id{number}/layer.tar")
            info.type, info.linkname = tarfile.SYMTYPE, f"../{name}"
            out.addfile(info)
        info = tarfile.TarInfo("manifest.json")
        data = json.dumps(manifest).encode()
        info.size = len(data)
        out.addfile(info, io.BytesIO(data))
    return path


def oci_layout(folder: Path, layers: list[bytes], name: str = "", *, nested: bool = False) -> Path:
    """An OCI layout with compressed layers."""

    def blob(data: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        (folder / "blobs/sha256").mkdir(parents=True, exist_ok=True)
        (folder / "blobs/sha256" / digest).write_bytes(data)
        return {"digest": f"sha256:{digest}", "size": len(data)}

    packed = [blob(gzip.compress(data)) for data in layers]
    manifest = blob(json.dumps({"config": blob(config(layers)), "layers": packed}).encode())
    if nested:
        other = blob(json.dumps({"config": {}, "layers": []}).encode())
        listed = [
            {**other, "platform": {"architecture": "none"}},
            {**manifest, "platform": {"architecture": ARCH}},
        ]
        manifest = blob(json.dumps({"manifests": listed}).encode())
    annotations = {"annotations": {"org.opencontainers.image.ref.name": name}} if name else {}
    (folder / "index.json").write_text(json.dumps({"manifests": [{**manifest, **annotations}]}))
    return folder
