from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.tasks.conftest import publish
from tests.tasks.git_server import GitServer, commit_all, git, write_task

from proctor.errors import FetchError, NotFoundError, ProctorError, StoreError, TaskError, UsageError
from proctor.model.spec import TaskEntry
from proctor.tasks.dataset import find_tasks
from proctor.tasks.fetch import DatasetCache, Datasets

pytestmark = pytest.mark.needs("git")


class Answer(list[str]):
    """What a fetch tells."""

    def __call__(self, sentence: str) -> None:
        self.append(sentence)


@pytest.fixture
def said() -> Answer:
    return Answer()


@pytest.fixture
def datasets(tmp_path: Path, said: Answer) -> Datasets:
    return Datasets(cache_dir=tmp_path / "cache", registries=(str(tmp_path / "registry.json"),), notify=said)


def head(work: Path) -> str:
    return git(work, "rev-parse", "HEAD")


def address(served: GitServer, ref: str, path: str = "tasks") -> str:
    return f"git+{served.url}/tasks.git@{ref}#{path}"


def write_registry(path: Path, url: str, commit: str, *names: str, **changes: object) -> None:
    rows = [
        {"name": name, "git_url": url, "git_commit_id": commit, "path": f"tasks/{name}", **changes}
        for name in names
    ]
    path.write_text(json.dumps([{"name": "greek", "version": "1.0", "description": "two", "tasks": rows}]))


def names_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_a_folder_of_a_commit_is_fetched_without_the_rest_of_the_repository(served, work, datasets):
    folder = datasets.folder(address(served, head(work)))
    assert names_in(folder) == ["alpha", "beta"]
    assert os.access(folder / "alpha/solution/solve.sh", os.X_OK)
    assert not os.access(folder / "alpha/task.toml", os.X_OK)
    assert (folder / "alpha/task.toml").read_bytes() == (work / "tasks/alpha/task.toml").read_bytes()
    assert not list(datasets.cache_dir.rglob("objects"))


def test_only_the_files_that_are_needed_travel(served, work, datasets, monkeypatch):
    asked: list[str] = []
    from proctor.tasks import git as module

    real = module.run_git
    monkeypatch.setattr(
        module, "run_git", lambda *words, **more: asked.append(more.get("stdin", "")) or real(*words, **more)
    )
    datasets.folder(address(served, head(work), "tasks/alpha"))
    large = git(work, "rev-parse", "HEAD:other/large.bin")
    wanted = git(work, "rev-parse", "HEAD:tasks/alpha/task.toml")
    assert any(wanted in each for each in asked)
    assert not any(large in each for each in asked)


def test_a_single_task_and_a_whole_repository_can_be_named(served, work, datasets):
    alone = datasets.folder(address(served, head(work), "tasks/alpha"))
    assert alone.name == "alpha"
    assert (alone / "task.toml").is_file()
    whole = datasets.folder(address(served, head(work), "").rstrip("#"))
    assert sorted(str(each.parent.relative_to(whole)) for each in whole.rglob("task.toml")) == [
        "tasks/alpha",
        "tasks/beta",
    ]
    assert not (whole / "other").exists()


def test_what_was_fetched_is_used_again_without_the_network(served, work, datasets, said):
    first = datasets.folder(address(served, head(work)))
    served.down = True
    asked = len(served.requests)
    assert datasets.folder(address(served, head(work))) == first
    assert len(served.requests) == asked
    assert said == [f"fetching {address(served, head(work))}"]


@pytest.mark.parametrize("config", [{"uploadpack.allowFilter": "false"}, {"protocol.version": "0"}])
def test_servers_that_can_do_less_are_served_too(served, work, datasets, config, monkeypatch):
    first = head(work)
    commit_all(work, "later")
    publish(work, served.folder / "tasks.git")
    for name, value in config.items():
        git(served.folder / "tasks.git", "config", name, value)
        monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
        monkeypatch.setenv("GIT_CONFIG_KEY_0", name)
        monkeypatch.setenv("GIT_CONFIG_VALUE_0", value)
    assert names_in(datasets.folder(address(served, first))) == ["alpha", "beta"]


def test_a_server_that_only_hands_out_files_will_do(served, work, datasets):
    served.smart = False
    git(served.folder / "tasks.git", "update-server-info")
    assert names_in(datasets.folder(address(served, head(work)))) == ["alpha", "beta"]


def test_a_server_that_filters_but_does_not_deliver_files_later_will_do(served, work, datasets, monkeypatch):
    from proctor.tasks import git as module

    monkeypatch.setattr(module, "_BLOBS", ("--filter=blob:none", "--stdin", "nowhere"))
    assert names_in(datasets.folder(address(served, head(work)))) == ["alpha", "beta"]


def test_repositories_with_sha256_are_checked_with_it(tmp_path, datasets):
    work = tmp_path / "new"
    write_task(work / "tasks/alpha")
    git(work, "init", "-q", "-b", "main", "--object-format=sha256")
    commit = commit_all(work)
    assert len(commit) == 64
    folder = datasets.folder(f"git+file://{work}@{commit}#tasks")
    assert names_in(folder) == ["alpha"]


def test_a_branch_and_a_tag_become_commits_and_it_is_said(served, work, datasets, said):
    commit = head(work)
    git(work, "tag", "-a", "v1", "-m", "one")
    publish(work, served.folder / "tasks.git")
    for ref in ("main", "v1", "HEAD"):
        assert datasets.pin(address(served, ref)).reference == address(served, commit)
        assert said[-1] == f"note: {address(served, ref)} is commit {commit}"
    assert datasets.pin(f"git+{served.url}/tasks.git").reference.endswith(f"@{commit}")
    with pytest.raises(TaskError, match="no branch or tag is named 'nope'"):
        datasets.pin(address(served, "nope"))
    with pytest.raises(TaskError, match="written in full"):
        datasets.pin(address(served, commit[:8]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ref": "0" * 40}, "there is no commit 0000"),
        ({"path": "nothing"}, "there is no folder 'nothing'"),
        ({"path": "other/large.bin"}, "is a file, not a folder"),
        ({"path": "other"}, "no task in 'other'"),
    ],
)
def test_what_is_not_there_is_named_and_leaves_nothing(served, work, datasets, change, message):
    with pytest.raises(TaskError, match=message):
        datasets.folder(address(served, **({"ref": head(work)} | change)))
    assert [each.name for each in (datasets.cache_dir / "datasets").iterdir()] == ["locks"]


def test_a_repository_that_is_not_there_is_named(served, datasets):
    with pytest.raises(TaskError, match="no git repository at this address"):
        datasets.folder(f"git+{served.url}/none.git@{'0' * 40}")


def test_a_cut_connection_is_tried_again(served, work, datasets, monkeypatch):
    monkeypatch.setattr("proctor.tasks.git._FIRST_WAIT_S", 0)
    served.cuts = 2
    assert names_in(datasets.folder(address(served, head(work)))) == ["alpha", "beta"]


def test_a_connection_that_stays_cut_is_no_fault_of_the_person(served, work, datasets, monkeypatch):
    monkeypatch.setattr("proctor.tasks.git._FIRST_WAIT_S", 0)
    served.cuts = 1000
    with pytest.raises(FetchError, match="could not be fetched") as caught:
        datasets.folder(address(served, head(work)))
    assert caught.value.exit_code == 4
    assert [each.name for each in (datasets.cache_dir / "datasets").iterdir()] == ["locks"]


def test_a_server_that_is_down_is_told_apart_from_a_wrong_address(served, work, datasets, monkeypatch):
    monkeypatch.setattr("proctor.tasks.git._FIRST_WAIT_S", 0)
    served.down = True
    with pytest.raises(FetchError, match="503"):
        datasets.folder(address(served, head(work)))


def test_two_processes_fetch_once(served, work, tmp_path):
    code = (
        "import sys; from pathlib import Path; from proctor.tasks.fetch import Datasets\n"
        "print(Datasets(cache_dir=Path(sys.argv[1])).folder(sys.argv[2]))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "cache"), address(served, head(work))]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    answers = [each.communicate() for each in both]
    assert [each.returncode for each in both] == [0, 0]
    assert answers[0][0] == answers[1][0]
    assert sum(error.count("fetching ") for _, error in answers) == 1


def test_a_fetch_that_is_killed_leaves_nothing_that_counts(served, work, datasets):
    code = (
        "import sys; from pathlib import Path; from proctor.tasks.fetch import Datasets\n"
        "Datasets(cache_dir=Path(sys.argv[1])).folder(sys.argv[2])"
    )
    served.held = threading.Event()
    words = [sys.executable, "-c", code, str(datasets.cache_dir), address(served, head(work))]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as process:
        assert served.reached.wait(60)
        process.kill()
    served.held.set()
    assert list(DatasetCache(datasets.cache_dir).all()) == []
    assert list((datasets.cache_dir / "datasets").glob(".fetching-*"))
    served.held = None
    assert names_in(datasets.folder(address(served, head(work)))) == ["alpha", "beta"]
    assert not list((datasets.cache_dir / "datasets").glob(".fetching-*"))


def test_a_machine_without_git_is_told_so(served, work, datasets, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="git, which is not installed here"):
        datasets.folder(address(served, "1" * 40))


def test_a_cache_that_cannot_be_written_is_told(served, work, tmp_path):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(StoreError, match="a dataset cannot be kept here"):
        Datasets(cache_dir=tmp_path / "cache").folder(address(served, head(work)))


def test_a_note_about_the_cache_that_cannot_be_read_counts_as_nothing(served, work, datasets):
    fetched = datasets.fetch(datasets.pin(address(served, head(work))))
    about = datasets.cache_dir / "datasets" / fetched.key / "dataset.json"
    for text in ("{", '{"format": 99}', '{"format": 1, "parts": []}'):
        about.write_text(text)
        assert list(DatasetCache(datasets.cache_dir).all()) == []
        assert names_in(datasets.folder(address(served, head(work)))) == ["alpha", "beta"]


def test_what_a_killed_fetch_left_is_cleared_away(served, work, datasets):
    folder = datasets.cache_dir / "datasets"
    fetched = datasets.fetch(datasets.pin(address(served, head(work))))
    DatasetCache(datasets.cache_dir).remove(fetched.key, print)
    left = folder / f".fetching-{fetched.key}-abc"
    (left / "files").mkdir(parents=True)
    assert list(DatasetCache(datasets.cache_dir).all()) == []
    datasets.folder(address(served, head(work)))
    assert not left.exists()


@pytest.mark.parametrize("harm", ["changed", "added", "removed", "mode", "beside"])
def test_a_cache_that_was_changed_is_found_and_can_be_fetched_again(served, work, datasets, said, harm):
    reference = address(served, head(work))
    folder = datasets.folder(reference)
    match harm:
        case "changed":
            (folder / "alpha/instruction.md").write_text("Do no.\n")
        case "added":
            (folder / "alpha/tests/more.sh").write_text("")
        case "removed":
            (folder / "alpha/instruction.md").unlink()
        case "mode":
            (folder / "alpha/solution/solve.sh").chmod(0o644)
        case "beside":
            write_task(folder / "gamma")
    with pytest.raises(
        TaskError, match="is not what was fetched; fetch it again with: proctor datasets pull"
    ):
        datasets.folder(reference)
    datasets.fetch(datasets.pin(reference), again=True)
    assert "fetched again" in " ".join(said)
    assert names_in(datasets.folder(reference)) == ["alpha", "beta"]


def test_a_password_in_an_address_opens_the_door_and_is_written_nowhere(served, work, datasets, said, capfd):
    served.password = "robot:s3cret/word"
    secret = served.url.replace("://", "://robot:s3cret%2Fword@")
    pinned = datasets.pin(f"git+{secret}/tasks.git@main#tasks")
    fetched = datasets.fetch(pinned)
    assert pinned.reference == address(served, head(work))
    assert names_in(DatasetCache(datasets.cache_dir).path(fetched)) == ["alpha", "beta"]
    kept = b"".join(each.read_bytes() for each in datasets.cache_dir.rglob("*") if each.is_file())
    shown = " ".join([*said, *capfd.readouterr(), repr(pinned)])
    assert b"s3cret" not in kept
    assert "s3cret" not in shown
    assert "robot" not in shown


def test_a_password_that_is_missing_or_wrong_is_not_asked_for(served, work, datasets):
    served.password = "robot:right"
    with pytest.raises(TaskError, match=r"access was refused.*credential helper"):
        datasets.folder(address(served, head(work)))
    secret = served.url.replace("://", "://robot:wrong@")
    with pytest.raises(TaskError, match="access was refused") as caught:
        datasets.folder(f"git+{secret}/tasks.git@{head(work)}#tasks")
    assert "wrong" not in str(caught.value)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("../../beta/task.toml", "leads out of its task"),
        ("/etc/passwd", "leads out of its task"),
        ("tests/../../../x", "leads out of its task"),
    ],
)
def test_links_that_lead_out_of_a_task_are_refused(served, work, datasets, target, message):
    (work / "tasks/alpha/tests/link").symlink_to(target)
    commit = commit_all(work)
    publish(work, served.folder / "tasks.git")
    with pytest.raises(TaskError, match=message):
        datasets.folder(address(served, commit))


def test_links_inside_a_task_are_kept(served, work, datasets):
    (work / "tasks/alpha/tests/link").symlink_to("../instruction.md")
    (work / "tasks/alpha/shared").symlink_to("tests")
    commit = commit_all(work)
    publish(work, served.folder / "tasks.git")
    folder = datasets.folder(address(served, commit))
    assert (folder / "alpha/tests/link").read_text() == "Do it.\n"
    assert (folder / "alpha/shared/test.sh").is_file()


def test_submodules_and_pointers_to_large_files_are_named(served, work, datasets):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n"
    (work / "tasks/beta/tests/model.bin").write_text(pointer)
    commit = commit_all(work)
    publish(work, served.folder / "tasks.git")
    with pytest.raises(TaskError, match=r"'tasks/beta/tests/model.bin' is a pointer to a file in Git LFS"):
        datasets.folder(address(served, commit))
    assert names_in(datasets.folder(address(served, commit, "tasks/alpha")))
    (work / "tasks/beta/tests/model.bin").rename(work / "tasks/model.bin")
    commit = commit_all(work)
    publish(work, served.folder / "tasks.git")
    assert "model.bin" in names_in(datasets.folder(address(served, commit)))
    git(work, "update-index", "--add", "--cacheinfo", f"160000,{commit},tasks/alpha/sub")
    git(work, "commit", "-q", "-m", "submodule")
    publish(work, served.folder / "tasks.git")
    with pytest.raises(TaskError, match="'tasks/alpha/sub' is a submodule"):
        datasets.folder(address(served, head(work), "tasks/alpha"))
    with pytest.raises(TaskError, match="'tasks/alpha/sub' is a submodule"):
        datasets.folder(address(served, head(work), "tasks/alpha/sub"))


def test_names_that_would_escape_are_refused(work, datasets):
    """Git itself writes no such tree, so it is made by hand."""
    blob = git(work, "rev-parse", "HEAD:tasks/alpha/task.toml")
    tree = b"100644 ../evil\0" + bytes.fromhex(blob) + b"100644 task.toml\0" + bytes.fromhex(blob)
    done = subprocess.run(
        ["git", "hash-object", "-t", "tree", "-w", "--stdin", "--literally"],
        cwd=work, input=tree, capture_output=True, check=True,
    )  # fmt: skip
    commit = git(work, "commit-tree", "-m", "evil", done.stdout.decode().strip())
    git(work, "update-ref", "refs/heads/evil", commit)
    with pytest.raises(ProctorError, match=r"not a name that can be fetched|could not be fetched"):
        datasets.folder(f"git+file://{work}@{commit}")
    assert not list(datasets.cache_dir.rglob("evil"))


def test_hooks_and_filters_of_a_repository_have_no_say(served, work, datasets, tmp_path, monkeypatch):
    (work / ".gitattributes").write_text("*.sh text eol=crlf\n*.md filter=shout\n")
    commit = commit_all(work)
    publish(work, served.folder / "tasks.git")
    config = tmp_path / "gitconfig"
    config.write_text('[filter "shout"]\n\tsmudge = tr a-z A-Z\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    folder = datasets.folder(address(served, commit))
    assert (folder / "alpha/instruction.md").read_text() == "Do it.\n"
    assert b"\r" not in (folder / "alpha/tests/test.sh").read_bytes()


def test_a_dataset_of_a_registry_has_its_tasks_in_one_folder(served, work, datasets, said, tmp_path):
    commit = head(work)
    url = f"{served.url}/tasks.git"
    write_registry(tmp_path / "registry.json", url, commit, "alpha", "beta", "alpha")
    folder = datasets.folder("greek@1.0")
    assert names_in(folder) == ["alpha", "beta"]
    assert said == [f"fetching 2 tasks of greek@1.0 from {url} at {commit[:12]}"]
    assert datasets.folder("greek") == folder


def test_tasks_of_one_name_from_two_commits_are_kept_apart(served, work, datasets, tmp_path):
    url = f"{served.url}/tasks.git"
    first = head(work)
    (work / "tasks/alpha/instruction.md").write_text("Do it better.\n")
    second = commit_all(work)
    publish(work, served.folder / "tasks.git")
    rows = [
        {"name": "a", "git_url": url, "git_commit_id": commit, "path": "tasks/alpha"}
        for commit in (first, second)
    ]
    document = [{"name": "two", "version": "1", "description": "", "tasks": rows}]
    (tmp_path / "registry.json").write_text(json.dumps(document))
    folder = datasets.folder("two@1")
    assert names_in(folder) == ["alpha", "alpha-2"]
    assert (folder / "alpha-2/instruction.md").read_text() == "Do it better.\n"


def test_a_registry_over_http_is_remembered_for_days_without_network(served, work, tmp_path, said):
    write_registry(served.folder / "registry.json", f"{served.url}/tasks.git", head(work), "alpha")
    source = f"{served.url}/registry.json"
    datasets = Datasets(cache_dir=tmp_path / "cache", registries=(source,), notify=said)
    folder = datasets.folder("greek@1.0")
    served.down = True
    asked = len(served.requests)
    assert datasets.folder("greek@1.0") == folder
    assert len(served.requests) == asked, "a version that cannot move needs no network"
    assert datasets.folder("greek") == folder
    assert "the copy of an earlier day is used" in said[-1]


def test_a_registry_behind_a_password_is_read_and_the_password_is_not_shown(served, work, tmp_path, said):
    served.password = "me:hidden"
    write_registry(served.folder / "registry.json", f"{served.url}/tasks.git", head(work), "alpha")
    source = f"{served.url}/registry.json".replace("://", "://me:hidden@")
    datasets = Datasets(cache_dir=tmp_path / "cache", registries=(source,), notify=said)
    assert datasets.pin("greek").reference == "greek@1.0"
    served.password = "me:changed"
    other = Datasets(cache_dir=tmp_path / "other", registries=(source,), notify=said)
    with pytest.raises(FetchError, match="HTTP 401") as caught:
        other.pin("greek")
    assert "hidden" not in str(caught.value)


def test_a_path_that_exists_wins_over_a_name(served, work, tmp_path):
    write_registry(tmp_path / "registry.json", f"{served.url}/tasks.git", head(work), "alpha")
    write_task(tmp_path / "greek/gamma")
    registries = (str(tmp_path / "registry.json"),)
    entry = TaskEntry(path="greek", source="dataset")
    here = find_tasks(entry, tmp_path, tmp_path / "cache", registries)
    assert [each.name for each in here.tasks] == ["org/gamma"]
    there = find_tasks(
        TaskEntry(path="greek@1.0", source="dataset"), tmp_path, tmp_path / "cache", registries
    )
    assert [each.name for each in there.tasks] == ["org/alpha"]


def test_names_that_no_registry_knows_are_told_with_what_is_known(served, work, datasets, tmp_path):
    write_registry(tmp_path / "registry.json", f"{served.url}/tasks.git", head(work), "alpha")
    with pytest.raises(NotFoundError, match=r"no dataset named 'grek' in .*did you mean 'greek'"):
        datasets.pin("grek")
    with pytest.raises(NotFoundError, match=r"'greek' has no version '2'; known: 1.0"):
        datasets.pin("greek@2")
    with pytest.raises(UsageError, match="neither a path that exists nor the name of a dataset"):
        datasets.pin("../greek")
    with pytest.raises(NotFoundError, match="no registry file is known"):
        Datasets(cache_dir=tmp_path).pin("greek")
