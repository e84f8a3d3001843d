"""What an ordinary user does with images and saved states; run as one by `test_ordinary_user`."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import sys
import tarfile
import time
from pathlib import Path

from proctor.errors import SandboxError
from proctor.model.task import Task, TaskEnvironment
from proctor.sandbox.base import Root, RootOptions, SandboxRequest
from proctor.sandbox.bubblewrap import Bubblewrap
from proctor.sandbox.image import engines, layered
from proctor.sandbox.image.layered import LayeredImages
from proctor.sandbox.image.layers import collect_garbage
from proctor.sandbox.image.oci import import_image

engines.installed = lambda: ()
layered.network_for_builds = lambda: "none"
home = Path.home()
work = home / "work"


async def text(backend, root, script, state=None):
    sandbox = backend.sandbox(SandboxRequest(name="look", root=root, state=state))
    await sandbox.start()
    result = await sandbox.exec(["sh", "-c", script])
    assert result.exit_code == 0, result
    return sandbox, result.stdout.decode()


async def build_and_save(backend):
    folder = work / "environment"
    folder.mkdir(parents=True)
    (folder / "a").write_text("A")
    (folder / "Dockerfile").write_text(
        "FROM x\nCOPY --chown=33:44 a /app/a\nRUN mkdir -m 700 /closed && echo 1 > /closed/f && rm -r /srv\n"
        "RUN rm -r /etc/terminfo && mkdir /etc/terminfo\nCOPY a /app/b\n"
    )
    environment = TaskEnvironment(folder=folder, dockerfile=folder / "Dockerfile")
    images = LayeredImages(work / "images", backend, RootOptions(host_root=True))
    root = await images.root(Task(name="t", path=folder, digest="d", environment=environment))
    look = "stat -c %u:%g /app/a; cat /closed/f; ls -A /srv /etc/terminfo 2>&1 | cut -c1-30; cat /app/b"
    sandbox, first = await text(backend, root, look)
    change = "chown 5:6 /app/a; chmod 0 /app/b; rm -r /closed; echo s > /state; chmod 700 /"
    await sandbox.exec(["sh", "-c", change])
    assert first.startswith("33:44\n1\nls: cannot access '/srv'"), first
    assert first.endswith("/etc/terminfo:\nA"), first
    assert await sandbox.save_state(work / "state.tar", max_bytes=1 << 20)
    await sandbox.stop()
    script = "stat -c %u:%g:%a /app/a /app/b; cat /state; [ ! -e /closed ]"
    sandbox, second = await text(backend, root, script, work / "state.tar")
    assert second == "5:6:644\n0:0:0\ns\n", second
    await sandbox.take_layer(work / "layer")
    await sandbox.stop()
    return root


async def build_stages(backend):
    folder = work / "stages"
    folder.mkdir(parents=True)
    (folder / "a").write_text("A")
    (folder / "a").chmod(0o600)
    (folder / "Dockerfile").write_text(
        "FROM x AS b\nRUN mkdir -m 700 /s && echo S > /s/f && chown -R 33:44 /s && ln -s f /s/l\nFROM x\n"
        "COPY --from=b /s /deep/s/\nRUN --mount=type=cache,target=/c,uid=7 --mount=source=a,target=/m/a "
        "--mount=from=b,source=/s,target=/m/s --mount=type=tmpfs,target=/t "
        "stat -c %u /c > /out; touch /t/x; cat /m/a /m/s/l >> /out\n"
    )
    environment = TaskEnvironment(folder=folder, dockerfile=folder / "Dockerfile")
    images = LayeredImages(work / "stage-images", backend, RootOptions(host_root=True))
    root = await images.root(Task(name="t", path=folder, digest="d", environment=environment))
    look = "cat /out /deep/s/l; stat -c %u:%g:%a /deep/s/f; ls -d /m /t /c 2>/dev/null | wc -l"
    sandbox, seen = await text(backend, root, look)
    await sandbox.stop()
    assert seen == "7\nAS\nS\n33:44:644\n0\n", seen


async def import_and_collect(backend, root):
    layers = sorted(each.name for each in (work / "images/layers").iterdir())
    assert len(layers) == 3, layers
    roots = layered.LayeredImages(work / "images", backend)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as out:
        for name, uid in (("x/f", 7), ("x/.wh..wh..opq", 0), ("x/.wh.gone", 0)):
            info = tarfile.TarInfo(name)
            info.uid = uid
            out.addfile(info)
    data = buffer.getvalue()
    config = json.dumps({"rootfs": {"diff_ids": ["sha256:" + hashlib.sha256(data).hexdigest()]}}).encode()
    with tarfile.open(work / "image.tar", "w") as out:
        manifest = [{"Config": "c", "RepoTags": ["i:1"], "Layers": ["l"]}]
        members = {"manifest.json": json.dumps(manifest).encode(), "c": config, "l": data}
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            out.addfile(info, io.BytesIO(content))
    (image,) = await import_image(roots.store, roots.references, work / "image.tar")
    imported = Root(host=True, layers=(roots.store.layers / image.layers[0],))
    sandbox, third = await text(backend, imported, "stat -c %u /x/f; ls -A /x")
    await sandbox.stop()
    assert third == "7\nf\n", third
    (work / "bad.tar").write_bytes(b"junk" * 200)
    said = ""
    try:
        await text(backend, root, "true", work / "bad.tar")
    except SandboxError as error:
        said = str(error)
    assert "cannot unpack" in said, said
    for file in (work / "images/users").iterdir():
        file.unlink()
    done = await collect_garbage(roots.store, roots.references, now=time.time() + 1e9, imported=True)
    assert done.removed == 4, done
    assert done.removed_bytes > 0
    assert list((work / "images/layers").iterdir()) == []


async def measure(backend, root):
    script = (
        "import os; fd = os.open('/x', os.O_CREAT | os.O_WRONLY); os.unlink('/x'); "
        "os.write(fd, b'x' * 8_000_000); print('written', flush=True); os.read(0, 1)"
    )
    sandbox = backend.sandbox(SandboxRequest(name="measured", root=root))
    await sandbox.start()
    written = asyncio.Event()
    argv = ["sh", "-c", 'sleep 1000 | python3 -c "$0"', script]
    running = asyncio.create_task(sandbox.exec(argv, on_output=lambda *_: written.set()))
    async with asyncio.timeout(30):
        await written.wait()
        used, _ = await sandbox._measure()
    assert used >= 8_000_000, used
    running.cancel()
    await sandbox.stop()


async def main():
    backend = Bubblewrap(work)
    await measure(backend, Root(host=True))
    root = await build_and_save(backend)
    await import_and_collect(backend, root)
    await build_stages(backend)
    await (await backend.keeper()).run(["rm", "-rf", str(work / "layer"), str(work / "stage-images/layers")])
    await backend.close()
    sys.stdout.write("fine\n")


asyncio.run(main())
