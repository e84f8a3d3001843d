from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.errors import ParamError, UsageError
from proctor.experiments.discover import find
from proctor.owner import owner_name, place_id
from proctor.trial.lockstep import worktree
from proctor.trial.lockstep.sides import (
    ComparedExperiment,
    SideCode,
    SideRequest,
    complete,
    make_side,
    moved,
    parse,
    parse_params,
    placed,
    same_code,
)
from proctor.trial.lockstep.worktree import Project, commit_of, find_project, is_clean, worktrees

EXPERIMENT = """
from proctor import Experiment, register_experiment
@register_experiment("of_the_project")
class OfTheProject(Experiment):
    def execute_once(self, context):
        return {}
"""


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "experiments").mkdir(parents=True)
    (root / "src" / "mylib").mkdir(parents=True)
    (root / "src" / "mylib" / "__init__.py").write_text("VERSION = 1\n")
    (root / "experiments" / "one.py").write_text(EXPERIMENT)
    git(root, "init", "-q", ".")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    return root


def listed(root: Path) -> list[str]:
    return [line for line in git(root, "worktree", "list").splitlines() if line]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["HEAD~1"], SideRequest(revision="HEAD~1")),
        (["rev:main"], SideRequest(revision="main")),
        (["."], SideRequest(folder=".")),
        (["path:lib"], SideRequest(folder="lib")),
        (["../old"], SideRequest(folder="../old")),
        (["python:/usr/bin/python3"], SideRequest(python="/usr/bin/python3")),
        (
            ["v1", "python:x", "params:n=1", "params:m=2"],
            SideRequest(revision="v1", python="x", params={"n": 1, "m": 2}),
        ),
        ([], SideRequest()),
    ],
)
def test_a_side_is_read_as_it_is_written(texts, expected):
    assert parse(texts, "--a") == expected


@pytest.mark.parametrize("texts", [["HEAD", "main"], ["HEAD", "path:x"], ["python:a", "python:b"], ["path:"]])
def test_a_side_that_says_two_things_at_once_is_refused(texts):
    with pytest.raises(UsageError, match="--b"):
        parse(texts, "--b")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n=10,mode=fast", {"n": 10, "mode": "fast"}),
        ('sizes=[1,2],on=true,name="a,b"', {"sizes": [1, 2], "on": True, "name": "a,b"}),
        ('{"n": {"deep": 1}}', {"n": {"deep": 1}}),
        ("empty=", {"empty": ""}),
    ],
)
def test_parameters_are_read_as_json_where_they_can_be(text, expected):
    assert parse_params(text, "--a") == expected


@pytest.mark.parametrize("text", ["n", "=3", '{"n": '])
def test_parameters_that_are_no_pairs_are_refused(text):
    with pytest.raises(ParamError):
        parse_params(text, "--a")


def test_by_default_the_last_commit_meets_the_working_tree():
    assert complete(SideRequest(), SideRequest()) == (SideRequest(revision="HEAD"), SideRequest(folder="."))


def test_with_other_differences_both_sides_run_the_same_code():
    a, b = complete(SideRequest(), SideRequest(params={"n": 2}))
    assert (a.folder, b.folder, a.revision) == (".", ".", "")
    a, b = complete(SideRequest(python="x"), SideRequest(revision="v1"))
    assert (a.revision, b.revision) == ("v1", "v1")


def test_a_label_says_what_differs():
    assert SideRequest(revision="v1", python="p", params={"n": 2}).label == "v1 python:p n=2"


@pytest.mark.needs("git")
def test_a_revision_is_checked_out_and_taken_away_again(repository):
    project = find_project(repository / "experiments")
    assert project == Project(repository, is_repository=True)
    with placed(SideRequest(), SideRequest(), project) as ((a, b), notes):
        assert (a.root / "src" / "mylib" / "__init__.py").read_text() == "VERSION = 1\n"
        assert b.root == repository
        assert a.commit == git(repository, "rev-parse", "HEAD")
        assert a.label.startswith("HEAD (")
        assert same_code(a, b, project)
        assert notes == []
        root = a.root
    assert not root.exists()
    assert len(listed(repository)) == 1


@pytest.mark.needs("git")
def test_a_changed_working_tree_is_not_the_same_code(repository):
    (repository / "src" / "mylib" / "__init__.py").write_text("VERSION = 2\n")
    project = find_project(repository)
    assert not is_clean(project)
    with placed(SideRequest(), SideRequest(), project) as ((a, b), _):
        assert not same_code(a, b, project)
    with placed(SideRequest(params={"n": 1}), SideRequest(), project) as ((a, b), _):
        assert not same_code(a, b, project)


@pytest.mark.needs("git")
def test_worktrees_are_removed_when_the_work_inside_fails(repository):
    project = find_project(repository)
    with pytest.raises(RuntimeError), placed(SideRequest(revision="HEAD"), SideRequest(), project):
        raise RuntimeError
    assert len(listed(repository)) == 1


@pytest.mark.needs("git")
def test_worktrees_of_a_killed_comparison_are_swept_by_the_next(repository, tmp_path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = tmp_path / f"proctor-ab-{gone.pid}-1-{place_id()}-xyz" / "a"
    mine = tmp_path / f"proctor-ab-{owner_name()}-xyz" / "a"
    for path in (left, mine):
        git(repository, "worktree", "add", "--detach", str(path))
    with worktrees(find_project(repository)):
        pass
    assert not left.parent.exists()
    assert mine.exists()


@pytest.mark.needs("git")
def test_a_worktree_that_git_cannot_remove_is_removed_all_the_same(repository):
    project = find_project(repository)
    with worktrees(project) as trees:
        path = trees.check_out("HEAD", "a")
        (path / ".git").unlink()
    assert not path.exists()
    assert len(listed(repository)) == 1


@pytest.mark.needs("git")
def test_an_interrupt_waits_until_git_has_finished(repository, monkeypatch):
    seen = []
    real = worktree._git

    def watch(*arguments, **named):
        seen.append(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        return real(*arguments, **named)

    with worktrees(find_project(repository)) as trees:
        monkeypatch.setattr(worktree, "_git", watch)
        trees.check_out("HEAD", "a")
    assert seen == [True, True]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.needs("git")
@pytest.mark.parametrize("revision", ["nope", "-q", "--help", "HEAD:src"])
def test_what_is_no_revision_is_refused(repository, revision):
    with pytest.raises(UsageError, match="is not a revision"):
        commit_of(find_project(repository), revision)


@pytest.mark.needs("git")
def test_a_folder_given_as_a_revision_gets_a_hint(repository, monkeypatch):
    monkeypatch.chdir(repository)
    with pytest.raises(UsageError, match="path:src"):
        commit_of(find_project(repository), "src")


def test_without_a_repository_revisions_are_refused_and_the_rest_works(tmp_path, monkeypatch):
    monkeypatch.setattr(worktree.shutil, "which", lambda _name: None)
    (tmp_path / "pyproject.toml").write_text("")
    project = find_project(tmp_path)
    assert project == Project(tmp_path, is_repository=False)
    with pytest.raises(UsageError, match="path:DIR"):
        commit_of(project, "HEAD")
    (tmp_path / "old").mkdir()
    with placed(SideRequest(folder=str(tmp_path / "old")), SideRequest(folder="."), project) as (
        (a, b),
        notes,
    ):
        assert (a.root, b.root) == (tmp_path / "old", tmp_path)
        (note,) = notes
        assert note.endswith("not at one path: the program nsenter (util-linux) is missing")


def test_a_folder_without_any_project_is_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(worktree.shutil, "which", lambda _name: None)
    assert find_project(tmp_path).root == tmp_path


@pytest.mark.needs("git")
def test_a_failing_git_says_why(repository):
    with pytest.raises(UsageError, match="git worktree"), worktrees(find_project(repository)) as trees:
        trees.check_out("0" * 40, "a")


def test_a_missing_folder_is_named(tmp_path):
    project = Project(tmp_path, is_repository=False)
    with pytest.raises(UsageError, match=r"side A: .*/nowhere is not a folder"):
        placed(SideRequest(folder=str(tmp_path / "nowhere")), SideRequest(), project).__enter__()


def test_an_interpreter_is_a_path_or_an_environment(tmp_path):
    project = Project(tmp_path, is_repository=False)
    with placed(SideRequest(python=sys.executable), SideRequest(python=sys.prefix), project) as ((a, b), _):
        assert a.python == sys.executable
        assert b.python == str(Path(sys.prefix) / "bin" / "python")
    with pytest.raises(UsageError, match="not a Python interpreter"):
        placed(SideRequest(python="/bin/true"), SideRequest(), project).__enter__()


def test_an_old_interpreter_is_refused(tmp_path):
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\necho 3 8\n")
    old.chmod(0o755)
    with pytest.raises(UsageError, match=r"is Python 3\.8; 3\.11 or later"):
        placed(
            SideRequest(python=str(old)), SideRequest(), Project(tmp_path, is_repository=False)
        ).__enter__()


def test_a_path_moves_with_its_project_when_it_exists_there(tmp_path):
    project = Project(tmp_path / "p", is_repository=False)
    other = tmp_path / "q"
    (other / "lib").mkdir(parents=True)
    assert moved(str(tmp_path / "p" / "lib"), project, other) == str(other / "lib")
    assert moved(str(tmp_path / "p" / "new"), project, other) == str(tmp_path / "p" / "new")
    assert moved("/usr/lib", project, other) == "/usr/lib"
    assert moved("a.module", project, other) == "a.module"


def test_a_side_looks_for_everything_in_its_own_folder(repository, tmp_path, monkeypatch):
    other = tmp_path / "other"
    (other / "src").mkdir(parents=True)
    (other / "experiments").mkdir()
    (other / "experiments" / "one.py").write_text(EXPERIMENT)
    monkeypatch.chdir(repository / "experiments")
    monkeypatch.setenv("PYTHONPATH", f"{repository / 'src'}{os.pathsep}/elsewhere")
    monkeypatch.syspath_prepend(str(repository / "src"))
    source = str(repository / "experiments")
    subject = ComparedExperiment(
        registered=find("of_the_project", [source]),
        sources=(source,),
        project=Project(repository, is_repository=True),
        seed=3,
    )
    a = SideCode(name="A", label="a", root=other, python="py", commit="c", params={"n": 2})
    b = SideCode(name="B", label="b", root=repository, python="py")
    side = make_side(a, b, subject, {"n": 1, "m": 1})
    assert side.file == str(other / "experiments" / "one.py")
    assert side.sources == (str(other / "experiments"),)
    assert side.cwd == str(other / "experiments")
    assert side.path == (str(other / "src"), "/elsewhere")
    assert side.params == {"n": 2, "m": 1}
    assert side.foreign == (str(repository),)
    assert (side.module, side.seed) == ("", 3)
    here = make_side(b, a, subject, {})
    assert here.file == str(repository / "experiments" / "one.py")
    assert here.foreign == (str(other),)


def test_an_experiment_that_a_side_lacks_is_borrowed_from_the_working_tree(repository, tmp_path, monkeypatch):
    other = tmp_path / "bare"
    other.mkdir()
    monkeypatch.chdir(tmp_path)
    source = str(repository / "experiments" / "one.py")
    subject = ComparedExperiment(
        registered=find("of_the_project", [source]),
        sources=(source,),
        project=Project(repository, is_repository=True),
    )
    place = SideCode(name="A", label="a", root=other, python="py", commit="c")
    side = make_side(place, SideCode(name="B", label="b", root=repository, python="py"), subject, {})
    assert side.file == source
    assert side.cwd == str(other)
    assert side.shared == (str(repository / "experiments"),)


def test_a_built_in_experiment_is_found_by_its_module(tmp_path):
    subject = ComparedExperiment(
        registered=find("pragma_profile"), sources=(), project=Project(tmp_path, is_repository=False)
    )
    place = SideCode(name="A", label="a", root=tmp_path, python="py")
    side = make_side(place, place, subject, {})
    assert (side.file, side.module) == ("", "proctor.experiments.database.pragma_profile")
