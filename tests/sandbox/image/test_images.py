"""Builds over the host's own system, in real sandboxes."""

# Scripts are kept whole, processes are short, and files that others make are waited for by looking.
# ruff: noqa: ASYNC110, ASYNC220, ASYNC221, E501

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from proctor.errors import ImageError, TaskError
from proctor.model.task import TaskEnvironment
from proctor.sandbox.image.images import SettingsOnly

pytestmark = [pytest.mark.anyio, pytest.mark.needs("bubblewrap")]


PROGRAM = (
    "import asyncio, sys\nfrom pathlib import Path\n"
    "from proctor.model.task import Task, TaskEnvironment\n"
    "from proctor.sandbox.base import RootOptions\nfrom proctor.sandbox.bubblewrap import Bubblewrap\nfrom proctor.sandbox.image import engines, layered\nfrom proctor.sandbox.image.layered import LayeredImages\n"
    "engines.installed = lambda: ()\nlayered.network_for_builds = lambda: 'none'\n"
    "async def main(home, cache, images, file):\n"
    "    backend = Bubblewrap(Path(home), cache_dir=Path(cache))\n"
    "    e = TaskEnvironment(folder=Path(file).parent, dockerfile=Path(file))\n"
    "    root = await LayeredImages(Path(images), backend, RootOptions(host_root=True)).root(Task(name='t', path=Path('.'), digest='d', environment=e))\n"
    "    print(root.layers[0].joinpath('stamp').read_text())\n"
    "    await backend.close()\n"
    "asyncio.run(main(*sys.argv[1:]))\n"
)
"""Builds one Dockerfile in a process of its own."""


async def test_steps_are_applied_in_order_over_the_host_s_system(images, make_task, look):
    task = make_task(
        "FROM debian:bookworm-slim\nENV GREETING='hello you'\nWORKDIR /app/work\n"
        "COPY data.txt sub/ ./\nRUN echo $GREETING > made && chmod 600 made\nUSER www-data\nWORKDIR ..\n",
        files={"data.txt": "d", "sub/inner": "i"},
    )
    root = await images.root(task)
    assert (root.host, root.workdir, root.user) == (True, "/app", "www-data")
    assert root.env["GREETING"] == "hello you"
    seen = await look(replace(root, user="root"), "cd work; ls; cat made data.txt inner; stat -c %u:%a made")
    assert seen == "data.txt\ninner\nmade\nhello you\ndi0:600"
    assert await look(root, "id -un; pwd") == "www-data\n/app"


async def test_an_unchanged_build_is_found_again_by_another_process_and_a_change_is_noticed(
    images, images_again, make_task, look
):
    text = "FROM x\nRUN date +%N > /stamp\nCOPY a /a\n"
    first = await images.root(make_task(text, files={"a": "1"}))
    again = await images_again().root(make_task(text, files={"a": "1"}))
    assert again == first
    changed = await images_again().root(make_task(text, files={"a": "2"}))
    assert changed.layers[0] == first.layers[0], "what the change does not reach is not built again"
    assert changed.layers[1] != first.layers[1]
    assert changed.digest != first.digest
    assert await look(changed, "cat /a") == "2"


async def test_a_thousand_askers_cause_one_build(images, images_dir, make_task):
    task = make_task("FROM x\nRUN echo built\n")
    roots = await asyncio.gather(*(images.root(task) for _ in range(1000)))
    assert len({root.digest for root in roots}) == 1
    assert len(list((images_dir / "layers").iterdir())) == 1


async def test_builders_in_several_processes_do_not_race(images_dir, cache_dir, tmp_path, make_task):
    task = make_task("FROM x\nRUN date +%N > /stamp; sleep 0.3\n")

    async def run(number: int) -> bytes:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, str(tmp_path / f"home{number}"), str(cache_dir), str(images_dir),
            str(task.environment.dockerfile), stdout=subprocess.PIPE,
        )  # fmt: skip
        out, _ = await process.communicate()
        assert process.returncode == 0
        return out

    stamps = await asyncio.gather(*(run(number) for number in range(3)))
    assert len(set(stamps)) == 1
    assert len(list((images_dir / "layers").iterdir())) == 1


async def test_a_killed_build_leaves_nothing_and_the_next_process_cleans_up(
    images_dir, images_again, cache_dir, tmp_path, make_task
):
    task = make_task("FROM x\nCOPY a /a\nRUN sleep 1000\n", files={"a": "A"})
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            PROGRAM,
            tmp_path / "other",
            cache_dir,
            images_dir,
            task.environment.dockerfile,
        ]
    )
    while not (images_dir / "locks").is_dir() or not list((images_dir / "locks").iterdir()):
        await asyncio.sleep(0.01)
    process.kill()
    process.wait()
    (images_dir / "scratch" / f"{process.pid}-1-0").mkdir()
    assert not [each for each in (images_dir / "layers").iterdir() if not each.name.startswith(".")]
    task = make_task("FROM x\nCOPY a /a\nRUN true\n", files={"a": "A"})
    assert (await images_again().root(task)).layers
    assert len(list((images_dir / "layers").iterdir())) == 1
    assert not list((images_dir / "scratch").iterdir())


async def test_a_step_that_reaches_nobody_is_told_how_to_open_a_private_mirror(images, make_task):
    task = make_task("FROM debian:12\nRUN echo 'connect (113:  No route to host)'; exit 100\n")
    with pytest.raises(ImageError, match=r"exit code 100 \(builds reach the internet only; .*network_allow"):
        await images.root(task)


async def test_a_failing_step_is_named_with_its_line_and_its_last_output(images, images_dir, make_task):
    task = make_task(
        "FROM debian:12\nRUN true\n\nRUN for i in $(seq 50); do echo line $i; done; \\\n  exit 3\n"
    )
    with pytest.raises(ImageError) as caught:
        await images.root(task)
    said = str(caught.value)
    assert f"{task.environment.dockerfile}:4: 'RUN for i in" in said
    assert "exit code 3" in said
    assert "in place of debian:12" in said
    assert "| line 50" in said
    assert "| line 3\n" not in said
    assert [each.name for each in (images_dir / "layers").iterdir() if each.name.startswith(".")] == []


async def test_a_failing_build_is_tried_twice_and_then_its_error_is_repeated(images, make_task, tmp_path):
    task = make_task("FROM x\nCOPY tries /tries\nRUN false\n", files={"tries": ""})
    errors = set()
    for _ in range(4):
        with pytest.raises(ImageError) as caught:
            await images.root(task)
        errors.add(id(caught.value))
    assert len(errors) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("FROM x\nCOPY nothing /x\n", "Dockerfile:2: COPY nothing /x: 'nothing' is not in the build context"),
        ("FROM x\nCOPY ../../secret /x\n", "leads out of the build context"),
        ("FORM x\n", "did you mean FROM"),
    ],
)
async def test_what_the_author_got_wrong_is_the_author_s_error(images, make_task, text, said):
    with pytest.raises(TaskError, match=said):
        await images.root(make_task(text))


async def test_a_build_that_takes_too_long_ends_and_says_where_it_was(images, images_dir, make_task):
    await images.root(make_task("FROM x\nRUN true\n"))
    task = make_task("FROM x\nRUN true\nRUN sleep 300\n", build_timeout_s=3.0)
    with pytest.raises(ImageError, match=r"within 3 s.*Dockerfile:3: RUN sleep 300"):
        await images.root(task)
    assert not list((images_dir / "layers").glob(".*"))


async def test_a_cancelled_asker_does_not_end_the_build_of_the_others(images, make_task):
    task = make_task("FROM x\nRUN sleep 0.2; echo 1 > /x\n")
    first = asyncio.ensure_future(images.root(task))
    second = asyncio.ensure_future(images.root(task))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).layers


async def test_closing_ends_builds_and_leaves_nothing(images, images_dir, make_task):
    asking = asyncio.ensure_future(images.root(make_task("FROM x\nRUN sleep 300\n")))
    while not (images_dir / "locks").is_dir() or not list((images_dir / "locks").iterdir()):
        await asyncio.sleep(0.01)
    await images.close()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert not list((images_dir / "layers").iterdir())


async def test_copies_follow_docker_s_rules_for_targets(images, make_task, look):
    task = make_task(
        "FROM x\nWORKDIR /app\nCOPY a /app\nCOPY a /app/b\nCOPY sub /app/sub2/\nCOPY a b* /many/\n"
        "COPY --chown=www-data:1000 --chmod=0750 a sub /owned/\nCOPY a /tmp/\nCOPY empty /app/empty/\n"
        "COPY <<note /app/note.txt\nA line\nnote\nADD zipped.tar.gz /unpacked/\nRUN ln -s /many /link\n"
        "COPY sub /link/\n",
        files={"a": "A", "b1": "B", "sub/x/y": "Y", "empty/.keep": ""},
    )
    folder = task.environment.folder
    subprocess.run(["tar", "-C", folder, "-czf", folder / "zipped.tar.gz", "sub"], check=True)
    (folder / "a").chmod(0o640)
    (folder / "to_sub").symlink_to("sub")
    root = await images.root(task)
    seen = await look(root, "cd /; find app many owned unpacked -type f | sort; cat app/note.txt")
    assert seen.split("\n") == [
        "app/a", "app/b", "app/empty/.keep", "app/note.txt", "app/sub2/x/y", "many/a", "many/b1", "many/x/y",
        "owned/a", "owned/x/y", "unpacked/sub/x/y", "A line",
    ]  # fmt: skip
    assert await look(root, "stat -c %U:%g:%a /owned/a /owned/x /app/a /tmp") == (
        "www-data:1000:750\nwww-data:1000:750\nroot:0:640\nroot:0:1777"
    )


async def test_a_link_in_the_image_cannot_make_a_copy_write_to_the_host(images, make_task, tmp_path, look):
    task = make_task(
        f"FROM x\nRUN mkdir -p /w {tmp_path} && ln -s {tmp_path} /w/out\nCOPY a /w/out/\n", files={"a": "A"}
    )
    root = await images.root(task)
    assert not (tmp_path / "a").exists()
    assert await look(root, f"cat {tmp_path}/a") == "A"


async def test_a_copy_that_the_image_makes_impossible_is_named_with_its_line(images, make_task):
    with pytest.raises(ImageError, match=r"Dockerfile:3: COPY a /w/out/.*No such file"):
        await images.root(make_task("FROM x\nRUN ln -s /nowhere /w\nCOPY a /w/out/\n", files={"a": "A"}))
    with pytest.raises(ImageError, match=r"Dockerfile:2: COPY .*chown failed: .*no-such-user"):
        await images.root(make_task("FROM x\nCOPY --chown=no-such-user a /a\n", files={"a": "A"}))
    task = make_task("FROM x\nADD cut.tar /a/\n", name="cut", files={"a": "A" * 9000})
    folder = task.environment.folder
    subprocess.run(["tar", "-C", folder, "-cf", folder / "cut.tar", "a"], check=True)
    os.truncate(folder / "cut.tar", 2000)
    with pytest.raises(ImageError, match=r"Dockerfile:2: ADD .*cannot unpack"):
        await images.root(task)


async def test_files_removed_by_a_step_stay_removed(images, make_task, look):
    task = make_task("FROM x\nCOPY a /d/a\nRUN echo\nRUN rm -r /d /srv && mkdir /d\n", files={"a": "A"})
    assert await look(await images.root(task), "ls -A /d; [ ! -e /srv ] && echo gone") == "gone"


async def test_a_process_left_by_a_step_ends_with_it(images, make_task, look):
    task = make_task("FROM x\nRUN (sleep 1000; touch /late) & echo started > /x\n")
    assert await look(await images.root(task), "ls /late 2>&1 | wc -l; cat /x") == "1\nstarted"


async def test_a_scratch_image_has_nothing_but_what_is_copied(images, make_task, backend, tmp_path):
    root = await images.root(make_task("FROM scratch\nCOPY a /d/a\n", files={"a": "A"}))
    assert not root.host
    from proctor.sandbox.base import SandboxRequest

    sandbox = backend.sandbox(SandboxRequest(name="s", root=root))
    await sandbox.start()
    try:
        await sandbox.download("/d", tmp_path / "out")
        assert (await sandbox.exec(["/bin/sh"])).exit_code == 127
    finally:
        await sandbox.stop()
    assert (tmp_path / "out/a").read_text() == "A"


async def test_what_needs_an_engine_says_so_when_there_is_none(images, real_images, make_task):
    text = "FROM x\nADD git@example.org:y.git /y\n"
    with pytest.raises(ImageError, match=r"Dockerfile:2: ADD of a git repository .*podman or docker"):
        await real_images.root(make_task(text))
    with pytest.raises(
        ImageError, match=r"Dockerfile:2: ADD of a git repository cannot be built with host root"
    ):
        await images.root(make_task(text))


async def test_a_missing_image_is_named_with_the_ways_to_get_it(real_images, make_task):
    for task in (make_task(None, image="example/image:1"), make_task("FROM example/image:1\n")):
        with pytest.raises(
            ImageError, match=r"example/image:1 .*proctor images import FILE.*host_root: true.*--host-root"
        ):
            await real_images.root(task)


async def test_a_missing_image_with_a_dockerfile_is_built(real_images, make_task):
    task = make_task("FROM scratch\nCOPY a /a\n", image="example/image:1", files={"a": "A"})
    assert len((await real_images.root(task)).layers) == 2


async def test_the_host_s_system_is_the_root_only_on_request(images, real_images, make_task, look):
    root = await images.root(make_task(None))
    assert (root.host, root.layers) == (True, ())
    assert await look(root, "pwd") == "/"
    assert (await images.root(make_task(None, image="example/image:1"))).host
    with pytest.raises(
        ImageError, match=r"no Dockerfile, no compose file and no docker_image.*host_root: true"
    ):
        await real_images.root(make_task(None))


async def test_another_environment_of_a_task_has_its_own_root(images, make_task):
    task = make_task("FROM x\nRUN echo 1 > /x\n")
    other = make_task("FROM x\nRUN echo 2 > /x\n", name="verifier").environment
    assert (await images.root(task)).layers != (await images.root(task, other)).layers


async def test_a_dockerfile_that_went_away_is_the_author_s_error(images, make_task):
    task = make_task("FROM x\n")
    task.environment.dockerfile.unlink()
    with pytest.raises(TaskError, match="No such file"):
        await images.root(task)


async def test_sandboxes_without_files_get_the_settings_only(tmp_path, make_task):
    images = SettingsOnly()
    root = await images.root(make_task("FROM x\nENV A=1\nWORKDIR /w\nRUN false\n"))
    assert (root.env["A"], root.workdir) == ("1", "/w")
    assert (await images.root(make_task("FROM x\nADD git@a:b c\n"))).workdir == "/"
    assert not (await images.root(make_task(None), TaskEnvironment())).host
