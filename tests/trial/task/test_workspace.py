from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.errors import SandboxError, TaskError
from proctor.model.spec import TaskEntry
from proctor.model.task import Repository, Task
from proctor.sandbox.base import Root, SandboxRequest
from proctor.sandbox.fake import Fake, FakeResult
from proctor.trial.collect import BaseFiles
from proctor.trial.task.prepare import with_content
from proctor.trial.task.workspace import Workspace, fetch, is_removed, removal, workspace_for


@pytest.fixture
def repository(tmp_path: Path) -> tuple[Path, str]:
    folder = tmp_path / "origin"
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(folder)]
    subprocess.run(["git", "init", "-q", "-b", "main", str(folder)], check=True)
    (folder / "sub").mkdir()
    (folder / "sub/a.txt").write_text("first\n")
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-qm", "one"], check=True)
    first = subprocess.run(
        [*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    (folder / "sub/a.txt").write_text("second\n")
    subprocess.run([*git, "commit", "-qam", "two"], check=True)
    return folder, first


def test_a_repository_is_fetched_once_at_its_start_commit(repository, tmp_path):
    folder, first = repository
    wanted = Repository(git_url=str(folder), start_commit_sha=first)
    place = fetch(wanted, tmp_path / "cache")
    assert (place / "sub/a.txt").read_text() == "first\n"
    (place / "marker").touch()
    assert (fetch(wanted, tmp_path / "cache") / "marker").exists()
    newest = fetch(replace(wanted, start_commit_sha=""), tmp_path / "cache")
    assert (newest / "sub/a.txt").read_text() == "second\n"
    assert not [each for each in (tmp_path / "cache/repositories").iterdir() if each.name.startswith(".")]


def test_a_folder_of_the_repository_can_be_the_workspace(repository, tmp_path):
    task = Task(
        name="t", path=tmp_path, digest="d", repository=Repository(git_url=str(repository[0]), subdir="sub")
    )
    assert (workspace_for(task, {}, tmp_path, tmp_path / "cache").source / "a.txt").exists()
    outside = replace(task, repository=replace(task.repository, subdir="../.."))
    with pytest.raises(TaskError, match="not a folder of the repository"):
        workspace_for(outside, {}, tmp_path, tmp_path / "cache")


@pytest.mark.parametrize("url", ["--upload-pack=evil", "/does/not/exist"])
def test_a_repository_that_cannot_be_had_is_the_tasks_error(url, tmp_path):
    with pytest.raises(TaskError):
        fetch(Repository(git_url=url), tmp_path)
    assert not list(tmp_path.glob("repositories/*"))


@pytest.mark.anyio
async def test_files_are_laid_out_in_order_and_the_source_is_only_read(tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source/keep.txt").write_text("keep")
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra/e.txt").write_text("extra")
    commands = []

    def handle(command):
        commands.append(command.argv[-1])
        return FakeResult()

    sandbox = Fake(handler=handle).sandbox(SandboxRequest(name="x", root=Root(host=True)))
    await sandbox.start()
    workspace = Workspace(
        source=tmp_path / "source",
        remove=("old file",),
        add=(("n/new.txt", b"new"), ("more", tmp_path / "extra"), ("one.txt", tmp_path / "extra/e.txt")),
    )
    await workspace.lay_out(sandbox, "/app")
    assert commands == [
        "mkdir -p /app",
        "rm -rf -- '/app/old file'",
    ]
    assert {name: data for name, data in sandbox.files.items() if name.startswith("/app")} == {
        "/app/keep.txt": b"keep",
        "/app/n/new.txt": b"new",
        "/app/more/e.txt": b"extra",
        "/app/one.txt": b"extra",
    }
    before = BaseFiles(Root(layers=(tmp_path / "extra",)), workspace, "/app")
    assert before("app/n/new.txt") == b"new"
    assert before("app/keep.txt") == b"keep"
    assert before("e.txt") == b"extra"
    assert before("app/../../etc/passwd") is None


@pytest.mark.anyio
async def test_a_folder_that_cannot_be_made_is_the_sandboxs_error():
    backend = Fake(handler=lambda command: FakeResult(exit_code=1, stderr=b"no room"))
    sandbox = backend.sandbox(SandboxRequest(name="x", root=Root(host=True)))
    await sandbox.start()
    with pytest.raises(SandboxError, match="no room"):
        await Workspace().lay_out(sandbox, "/app")


def test_the_plan_sees_the_content_of_overrides_and_not_their_path(tmp_path):
    (tmp_path / "extra.txt").write_text("one")
    (tmp_path / "o.json").write_text(json.dumps({"overlay_files": {"x": "extra.txt"}}))
    entry = TaskEntry(path="t", overrides="o.json")
    first = with_content(entry, tmp_path).overrides
    (tmp_path / "extra.txt").write_text("two")
    assert with_content(entry, tmp_path).overrides != first
    assert with_content(replace(entry, overrides=None), tmp_path).overrides is None
    (tmp_path / "extra.txt").unlink()
    with pytest.raises(TaskError, match=r"extra\.txt"):
        with_content(entry, tmp_path)


@pytest.mark.parametrize(
    ("pattern", "gone"),
    [
        ("a.log", {"a.log"}),
        ("*.log", {"a.log"}),
        ("**/*.log", {"a.log", "sub/b.log", "sub/deep/c.log"}),
        ("sub/", {"sub/b.log", "sub/deep/c.log", "sub/x y.txt"}),
        ("sub/*", {"sub/b.log", "sub/deep/c.log", "sub/x y.txt"}),
        ("sub/x y.txt", {"sub/x y.txt"}),
        ("s?b/[bc].log", {"sub/b.log"}),
        (".*", {".env"}),
        ("[!a].log", set()),
        ("sub/[!b].log", set()),
        ("**/b.log", {"sub/b.log"}),
        ("**/log", set()),
        ("sub/**", {"sub/b.log", "sub/deep/c.log", "sub/x y.txt"}),
        (".*/../keep.txt", set()),
        ("$(touch owned)", set()),
        ("'; touch owned; '*", set()),
    ],
)
def test_patterns_remove_what_they_match_and_the_base_knows_it(tmp_path, pattern, gone):
    place = tmp_path / "a folder"
    names = {"a.log", "sub/b.log", "sub/deep/c.log", "sub/x y.txt", ".env", "keep.txt"}
    for name in names:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).touch()
    subprocess.run(["/bin/sh", "-c", removal(str(place), [pattern])], check=True, cwd=tmp_path)
    left = {str(each.relative_to(place)) for each in place.rglob("*") if each.is_file()}
    assert names - left == gone
    assert {name for name in names if is_removed(name, [pattern])} == gone
    assert not list(tmp_path.rglob("owned"))


_COMPONENT = st.sampled_from(["a", "b", "ab", ".h", "*", "?", "a*", ".*", "[!a]", "[^a]", "[a-b]", "**"])
_PATHS = st.sets(
    st.lists(st.sampled_from(["a", "b", "ab", ".h"]), min_size=1, max_size=4).map("/".join), max_size=12
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(paths=_PATHS, pattern=st.lists(_COMPONENT, min_size=1, max_size=4).map("/".join))
def test_the_shell_removes_what_is_counted_as_removed(tmp_path, paths, pattern):
    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
        for path in paths:
            Path(folder, path).mkdir(parents=True, exist_ok=True)
        before = {str(each.relative_to(folder)) for each in Path(folder).rglob("*")}
        subprocess.run(["/bin/sh", "-c", removal(folder, [pattern])], check=True)
        after = {str(each.relative_to(folder)) for each in Path(folder).rglob("*")}
        assert before - after == {path for path in before if is_removed(path, [pattern])}


def test_overlays_are_not_the_agents_diff(tmp_path):
    layer, overlay, source = (tmp_path / name for name in ("layer/app/repo", "overlay", "source"))
    for folder in (layer, overlay / "docs", source):
        folder.mkdir(parents=True)
    (layer / "old.txt").write_text("image")
    (source / "main.py").write_text("source")
    (overlay / "docs/a.md").write_text("overlay")
    (tmp_path / "one.txt").write_text("one")
    space = Workspace(
        source=source,
        remove=("main.*",),
        add=(("", overlay), ("one.txt", tmp_path / "one.txt"), ("two.txt", b"two")),
        replaces=True,
    )
    base = BaseFiles(Root(layers=(tmp_path / "layer",)), space, "/app/repo")
    found = {
        name: base(f"app/repo/{name}") for name in ("docs/a.md", "one.txt", "two.txt", "main.py", "old.txt")
    }
    assert found == {
        "docs/a.md": b"overlay",
        "one.txt": b"one",
        "two.txt": b"two",
        "main.py": None,
        "old.txt": None,
    }
