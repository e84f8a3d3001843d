from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.resources import Resources
from tests.tasks.conftest import publish
from tests.tasks.git_server import GitServer, commit_all, git, serve

from proctor.cli.main import main
from proctor.settings import load_settings
from proctor.store.open import open_store

pytestmark = pytest.mark.needs("git")


@pytest.fixture
def work(tmp_path: Path, make_task) -> Path:
    for name in ("alpha", "beta"):
        make_task(name)
    commit_all(tmp_path / "tasks")
    return tmp_path / "tasks"


@pytest.fixture
def served(tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitServer]:
    folder = tmp_path / "served"
    folder.mkdir()
    publish(work, folder / "r.git")
    with serve(folder) as server:
        commit = git(work, "rev-parse", "HEAD")
        rows = [
            {"name": each, "git_url": f"{server.url}/r.git", "git_commit_id": commit, "path": each}
            for each in ("alpha", "beta")
        ]
        dataset = {"name": "greek", "version": "1.0", "description": "Two letters.", "tasks": rows}
        (folder / "registry.json").write_text(json.dumps([dataset]))
        monkeypatch.setenv("PROCTOR_DATASET_REGISTRIES", f"{server.url}/registry.json")
        monkeypatch.chdir(tmp_path)
        yield server


def listed(capsys) -> list[dict[str, object]]:
    capsys.readouterr()
    assert main(["datasets", "ls", "--json"]) == 0
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


def test_datasets_are_listed_pulled_and_removed(served, capsys):
    (before,) = listed(capsys)
    assert (before["name"], before["version"], before["tasks"], before["cached"]) == (
        "greek",
        "1.0",
        2,
        False,
    )
    assert main(["datasets", "pull", "greek@1.0"]) == 0
    shown = capsys.readouterr()
    assert "greek@1.0: 2 tasks" in shown.out
    assert f"fetching 2 tasks of greek@1.0 from {served.url}/r.git" in shown.err
    (after,) = listed(capsys)
    assert after["cached"]
    assert int(str(after["bytes"])) > 100
    assert main(["datasets", "ls"]) == 0
    assert "greek@1.0" in capsys.readouterr().out
    assert main(["datasets", "rm", "greek@1.0"]) == 0
    assert not listed(capsys)[0]["cached"]
    assert main(["datasets", "rm", "greek@1.0"]) == 2
    assert "no dataset 'greek@1.0' is here" in capsys.readouterr().err


def test_what_came_from_git_is_listed_by_its_address(served, work, capsys):
    commit = git(work, "rev-parse", "HEAD")
    assert main(["datasets", "pull", f"git+{served.url}/r.git@main"]) == 0
    rows = listed(capsys)
    assert [each["reference"] for each in rows] == ["greek@1.0", f"git+{served.url}/r.git@{commit}"]
    assert rows[1]["tasks"] == 2
    assert main(["datasets", "ls"]) == 0
    short = f"git+{served.url}/r.git@{commit[:12]}"
    assert short in capsys.readouterr().out
    assert main(["datasets", "rm", short]) == 0
    assert len(listed(capsys)) == 1


def test_a_terminal_sees_how_far_git_is(served, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert main(["datasets", "pull", "greek"]) == 0
    said = capsys.readouterr().err
    assert "Receiving objects: 100%" in said or "Resolving deltas: 100%" in said  # git skips what was quick


def test_a_registry_that_cannot_be_reached_costs_its_rows_only(served, capsys):
    served.down = True
    assert main(["datasets", "ls"]) == 0
    shown = capsys.readouterr()
    assert "note:" in shown.err
    assert "No datasets." in shown.out


def test_a_tampered_copy_is_found_and_pull_mends_it(served, capsys):
    assert main(["datasets", "pull", "greek@1.0"]) == 0
    place = Path(capsys.readouterr().out.rstrip().rpartition(" in ")[2])
    (place / "alpha/instruction.md").write_text("Give up.\n")
    assert main(["plan", "-d", "greek@1.0", "-a", "oracle"]) == 2
    assert "proctor datasets pull greek@1.0" in capsys.readouterr().err
    assert main(["datasets", "pull", "greek@1.0"]) == 0
    assert main(["plan", "-d", "greek@1.0", "-a", "oracle"]) == 0


def test_planning_a_dataset_fetches_it_and_says_so_once(served, capsys):
    assert main(["plan", "-d", "greek@1.0", "-a", "oracle", "--include", "al*"]) == 0
    shown = capsys.readouterr()
    assert shown.err.count("fetching 2 tasks of greek@1.0") == 1
    assert "t/alpha × oracle" in shown.out
    assert "t/beta" not in shown.out
    served.down = True
    assert main(["plan", "-d", "greek@1.0", "-a", "oracle"]) == 0
    assert capsys.readouterr().err == ""


def test_a_dataset_can_be_named_in_a_spec(served, tmp_path, capsys):
    (tmp_path / "spec.toml").write_text('agent = "oracle"\n[[tasks]]\ndataset = "greek@1.0"\n')
    assert main(["plan", "spec.toml", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [each["subject"] for each in plan["trials"]] == ["t/alpha", "t/beta"]
    assert plan["resolved"]["tasks"][0]["dataset"] == "greek@1.0"


@pytest.mark.needs("bubblewrap")
def test_a_branch_is_stored_as_the_commit_that_was_run(served, work, capsys):
    commit = git(work, "rev-parse", "HEAD")
    secret = served.url.replace("://", "://robot:s3cret@")
    address = f"git+{secret}/r.git@main#alpha"
    words = ["run", "-d", address, "-a", "oracle", "-n", "2", "--set", "sandbox.host_root=true"]
    assert main(words) == 0
    shown = capsys.readouterr()
    assert f"note: git+{served.url}/r.git@main#alpha is commit {commit}" in shown.err
    with open_store(load_settings().store_url, create=False) as store:
        info = store.run(store.runs()[0].id)
    assert info.spec["tasks"] == [{"dataset": f"git+{served.url}/r.git@main#alpha"}]
    assert info.resolved["tasks"][0]["dataset"] == f"git+{served.url}/r.git@{commit}#alpha"
    kept = b"".join(
        each.read_bytes()
        for place in (load_settings().home, load_settings().rollouts_dir)
        for each in place.rglob("*")
        if each.is_file() and "layers" not in each.parts
    )
    assert b"s3cret" not in kept
    assert "s3cret" not in shown.out + shown.err
    (work / "alpha/instruction.md").write_text("Something else.\n")
    commit_all(work, "later")
    publish(work, served.folder / "r.git")
    assert main(["resume", info.id]) == 0, "the run keeps its commit"


def test_the_printed_spec_has_no_password(served, capsys):
    address = f"git+{served.url}/r.git@main".replace("://", "://robot:s3cret@")
    assert main(["run", "-d", address, "-a", "oracle", "--print-spec"]) == 0
    shown = capsys.readouterr()
    assert "s3cret" not in shown.out + shown.err
    assert "r.git@main" in shown.out


def test_a_wrong_commit_is_told_and_nothing_is_run(served, capsys):
    assert main(["run", "-d", f"git+{served.url}/r.git@{'0' * 40}", "-a", "oracle"]) == 2
    assert "there is no commit 0000" in capsys.readouterr().err
    assert not Path(load_settings().store_url).exists()


def test_vet_takes_datasets(served, capsys, monkeypatch):
    from proctor.runs.vet.planning import VetRequest, create_vetting

    request = VetRequest(paths=(), datasets=("greek@1.0",), rollouts=1, repeats=1)
    job = create_vetting(request, Resources(load_settings()))
    assert {trial.subject for trial in job.plan.trials} == {"t/alpha", "t/beta"}
    assert main(["vet"]) == 2
    assert "nothing to vet" in capsys.readouterr().err
    assert main(["vet", "-d", "greek@3"]) == 2
    assert "known: 1.0" in capsys.readouterr().err
