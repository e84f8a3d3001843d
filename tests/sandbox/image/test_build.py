"""Stages, mounts and documents, built in real sandboxes."""

# Dockerfiles are kept whole.
# ruff: noqa: E501

from __future__ import annotations

import pytest
from tests.sandbox.image.archives import docker_archive, host_layer, layer

from proctor.errors import ImageError, TaskError
from proctor.sandbox.image.layered import LayeredImages
from proctor.sandbox.image.oci import import_image

pytestmark = [pytest.mark.anyio, pytest.mark.needs("bubblewrap")]


@pytest.fixture
async def tool(backend, images_dir, tmp_path):
    """LayeredImages that are here: one with a shell and one with nothing but a program and links."""
    roots = LayeredImages(images_dir, backend)
    shell = docker_archive(tmp_path / "shell.tar", [host_layer()], ["shell:1"])
    await import_image(roots.store, roots.references, shell)
    files = layer({"tool": b"a tool", "opt/": None, "opt/one": b"1", "opt/two": b"2"})
    await import_image(
        roots.store, roots.references, docker_archive(tmp_path / "tool.tar", [files], ["tool:1"])
    )
    return roots


async def test_a_later_stage_takes_files_of_earlier_ones(images, make_task, look):
    text = (
        "FROM x AS build\nRUN mkdir -p /out/sub && echo made > /out/sub/a && ln -s a /out/sub/l "
        "&& chown 33:44 /out/sub/a && chmod 4750 /out/sub/a\n"
        "FROM x AS unused\nRUN false\n"
        "FROM x\nCOPY --from=build /out /app/\nCOPY --from=0 /out/sub/a /app/b\nCOPY --from=BUILD /out/sub/* /w/\n"
        "COPY --from=build --chown=5:6 --chmod=600 out/sub/a /app/c\n"
    )
    root = await images.root(make_task(text))
    assert await look(root, "cat /app/sub/l /app/b /w/l; readlink /app/sub/l; ls /w") == (
        "made\nmade\nmade\na\na\nl"
    )
    assert await look(root, "stat -c %u:%g:%a /app/sub/a /app/c") == "33:44:4750\n5:6:600"


async def test_a_stage_can_be_built_on_another_and_inherits_everything(images, make_task, look):
    text = (
        'FROM x AS one\nARG V=1\nENV A=a$V\nWORKDIR /w\nSHELL ["/bin/bash", "-c"]\nRUN echo $A > f\n'
        "ONBUILD RUN echo trigger $V > /t\nFROM one\nRUN [[ x == x ]] && echo $V >> f\n"
    )
    root = await images.root(make_task(text))
    assert await look(root, "cat f /t; pwd") == "a1\n1\ntrigger 1\n/w"


async def test_a_layer_is_named_after_the_content_it_takes_from_another_stage(
    images, images_again, make_task
):
    text = (
        "FROM x AS build\nCOPY a /src/a\nRUN wc -c < /src/a > /size\nFROM x\nCOPY --from=build /size /size\n"
    )
    first = await images.root(make_task(text, files={"a": "1"}))
    same = await images_again().root(make_task(text, files={"a": "2"}))
    assert same.layers == first.layers, "what the last stage takes has not changed"
    other = await images_again().root(make_task(text, files={"a": "12"}))
    assert other.layers != first.layers
    assert other.digest != first.digest


async def test_files_of_an_image_without_a_shell_can_be_taken(tool, real_images, make_task, look):
    text = (
        "FROM shell:1\nCOPY --from=tool:1 /tool /bin/\nCOPY --from=tool:1 /opt /o\nRUN cat /bin/tool > /x\n"
    )
    root = await real_images.root(make_task(text))
    assert not root.host
    assert await look(root, "cat /x /o/one /o/two") == "a tool12"
    only = await real_images.root(make_task("FROM scratch\nCOPY --from=tool:1 /opt/one /a/\n", name="only"))
    assert len(only.layers) == 2
    with pytest.raises(ImageError, match=r"Dockerfile:2: COPY /nothing /x: '/nothing' is not there"):
        await real_images.root(make_task("FROM shell:1\nCOPY --from=tool:1 /nothing /x\n", name="other"))
    with pytest.raises(ImageError, match="no-such:1 is in no registry"):
        await real_images.root(make_task("FROM shell:1\nCOPY --from=no-such:1 /x /x\n", name="third"))


async def test_with_host_root_an_image_has_no_files_to_take(tool, images, make_task):
    with pytest.raises(
        ImageError, match=r"Dockerfile:2: COPY /tool /x: with host root there is no image tool:1"
    ):
        await images.root(make_task("FROM shell:1\nCOPY --from=tool:1 /tool /x\n"))


async def test_links_of_a_stage_never_lead_out_of_it(images, make_task, look, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret of this machine")
    text = f"FROM x AS evil\nRUN mkdir -p /d && ln -s {secret} /d/l && ln -s / /d/root\nFROM x\n"
    root = await images.root(make_task(f"{text}COPY --from=evil /d /d\n"))
    assert "secret of" not in await look(root, "cat /d/l 2>&1 || true")
    with pytest.raises(ImageError, match="is not there"):
        await images.root(make_task(f"{text}COPY --from=evil /d/l /d\n", name="other"))
    again = await images.root(make_task(f"{text}COPY --from=evil /d/root/etc/hostname /h\n", name="third"))
    assert await look(again, "cat /h") == "sandbox"
    assert not (tmp_path / "d").exists()


async def test_paths_can_be_kept_and_names_left_out(images, make_task, look):
    text = (
        "FROM x AS b\nRUN mkdir -p /s/one/two && touch /s/one/a.txt /s/one/two/b.md /s/one/two/c.txt\nFROM x\n"
        "COPY --parents one/two/*.md one/a.txt /p/\nCOPY --exclude=*.md --exclude=**/a.txt one /e/\n"
        "COPY --from=b --parents /s/./one/two/b.md /q/\nCOPY --from=b --exclude=**/*.txt /s /r/\n"
    )
    files = {"one/two/b.md": "", "one/a.txt": "", "one/two/c.txt": "", "one/d.md": ""}
    root = await images.root(make_task(text, files=files))
    assert (await look(root, "cd /; find p e q r -type f | sort")).split() == [
        "e/two/b.md", "e/two/c.txt", "p/one/a.txt", "p/one/two/b.md", "q/one/two/b.md", "r/one/two/b.md",
    ]  # fmt: skip


async def test_a_stage_can_be_chosen_and_arguments_given(images, backend, images_dir, make_task):
    from proctor.sandbox.base import RootOptions
    from proctor.sandbox.image.definition import Definition

    file = make_task(
        "ARG BASE=x\nFROM $BASE AS one\nARG W=/w\nWORKDIR $W\nFROM one AS two\nWORKDIR /two\n"
    ).environment.dockerfile
    roots = LayeredImages(images_dir, backend, RootOptions(host_root=True))
    await roots.store.open()
    asked = Definition(where="here", dockerfile=file, target="one", arguments={"W": "/given"})
    assert (await roots._made(asked, lambda build: None)).workdir == "/given"
    with pytest.raises(TaskError, match="there is no stage 'three'; there are: one, two"):
        await roots._made(Definition(where="here", dockerfile=file, target="three"), lambda build: None)


async def test_a_cache_stays_from_build_to_build_and_out_of_the_image(images, make_task, look, images_dir):
    mount = "RUN --mount=type=cache,target=/cache/pip,id=pip,sharing=locked"
    first = f"FROM x\n{mount} ls /cache/pip | wc -l > /seen; echo 1 > /cache/pip/kept\n"
    root = await images.root(make_task(first))
    assert await look(root, "cat /seen; ls -A / | grep -c cache || true") == "0\n0"
    second = f"FROM x\nRUN true\n{mount} --network=none cat /cache/pip/kept > /seen\n"
    assert await look(await images.root(make_task(second, name="second")), "cat /seen") == "1"
    third = (
        "FROM x\nRUN --mount=type=cache,target=/c,id=own,uid=33,gid=44,mode=0700 stat -c %u:%g:%a /c > /s\n"
    )
    assert await look(await images.root(make_task(third, name="third")), "cat /s") == "33:44:700"


async def test_files_of_the_context_and_of_stages_are_shown_to_a_run_only(images, make_task, look):
    text = (
        "FROM x AS b\nRUN mkdir /made && echo made > /made/m && chmod 600 /made/m\nFROM x\nWORKDIR /app\n"
        "RUN --mount=type=bind,source=need.txt,target=/tmp/need.txt "
        "--mount=type=bind,target=/ctx --mount=from=b,source=/made,target=/from "
        "--mount=from=b,source=/made/m,target=one "
        "cat /tmp/need.txt /ctx/need.txt /from/m one > /out; ls -A /ctx >> /out; "
        "touch /ctx/x 2>/dev/null && echo written >> /out; true\n"
    )
    task = make_task(text, files={"need.txt": "N\n", "skip": "", ".dockerignore": "skip\nDockerfile\n"})
    (task.environment.folder / "need.txt").chmod(0o600)
    root = await images.root(task)
    assert await look(root, "cat /out") == "N\nN\nmade\nmade\n.dockerignore\nneed.txt"
    assert await look(root, "ls -A /tmp /app; ls -d /ctx /from 2>/dev/null || echo gone") == (
        "/app:\n\n/tmp:\ngone"
    )
    other = make_task(text, files={"need.txt": "other\n", "skip": ""})
    assert (await images.root(other)).layers != root.layers, "what is shown decides the layer's name"


async def test_a_temporary_folder_and_a_secret_that_nobody_gave(images, make_task, look, images_dir):
    text = (
        "FROM x\nRUN --mount=type=tmpfs,target=/scratch --mount=type=secret,id=token "
        "echo 1 > /scratch/x; stat -c %a /scratch > /s; ls /run/secrets >> /s 2>&1 || echo none >> /s\n"
    )
    root = await images.root(make_task(text))
    assert (await look(root, "cat /s; ls /scratch 2>/dev/null || echo gone")).split()[0] == "1777"
    assert await look(root, "tail -n1 /s; ls /scratch 2>/dev/null || echo gone") == "none\ngone"
    assert len(list((images_dir / "layers").iterdir())) == 1


async def test_documents_run_as_scripts_with_the_interpreter_they_name(images, make_task, look):
    text = (
        "FROM x\nRUN <<EOF\necho one > /a\necho two >> /a\nEOF\n"
        "RUN <<EOF bash\n[[ 1 == 1 ]] && echo bash >> /a\nEOF\n"
        "RUN bash <<-'EOF'\n\techo $((1+1)) \"$HOME\" >> /a\n\tEOF\n"
        "RUN <<EOF\n#!/usr/bin/python3\nopen('/a', 'a').write('python\\n')\nEOF\n"
        "RUN cat <<A > /b && cat <<B >> /b\nfirst\nA\nsecond\nB\n"
        "RUN [ $((1 << 2)) = 4 ] && bash -c 'cat > /c <<< x'\n"
    )
    root = await images.root(make_task(text))
    assert await look(root, "cat /a /b") == "one\ntwo\nbash\n2 /root\npython\nfirst\nsecond"


async def test_what_a_base_image_wants_first_is_done_first(
    backend, images_dir, real_images, make_task, tmp_path, look
):
    roots = LayeredImages(images_dir, backend)
    inner = {
        "Env": ["PATH=/bin"],
        "WorkingDir": "/",
        "OnBuild": ["COPY a /first", "RUN cat /first > /second"],
    }
    file = docker_archive(tmp_path / "i.tar", [host_layer()], ["shell:1"], config=inner)
    await import_image(roots.store, roots.references, file)
    root = await real_images.root(make_task("FROM shell:1\nRUN cat /second > /third\n", files={"a": "A"}))
    assert await look(root, "cat /third") == "A"
