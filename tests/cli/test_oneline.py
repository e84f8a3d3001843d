"""`proctor run` and `plan` without a spec file."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from proctor.cli.main import main
from proctor.settings import load_settings
from proctor.store.open import open_store


@pytest.fixture
def project(tmp_path: Path, make_task, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_task("hello")
    make_task("world")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def keys(capsys, *words: str) -> list[str]:
    assert main(["plan", *words, "--json"]) == 0
    return [trial["key"] for trial in json.loads(capsys.readouterr().out)["trials"]]


LINES = [
    ("-t", "tasks/hello", "-a", "oracle"),
    ("-t", "tasks", "-a", "oracle", "-a", "nop", "-n", "3", "--parallel", "2", "--exclude", "w*"),
    ("-t", "tasks/hello", "-t", "tasks/world", "-a", "oracle", "-m", "m1", "-m", "m2", "--timeout-s", "9"),
    ("-d", "tasks", "-a", "oracle", "--env", "A=1", "--set", "sandbox.network=none", "--name", "mine"),
    ("-t", "tasks/hello", "-a", "command", "--agent-option", "command=true {instruction}"),
]


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_the_printed_spec_gives_the_same_trials(project, capsys, line):
    expected = keys(capsys, *line)
    assert main(["run", *line, "--print-spec"]) == 0
    printed = capsys.readouterr().out
    assert str(project) not in printed, "paths are as typed"
    (project / "printed.toml").write_text(printed)
    assert keys(capsys, "printed.toml") == expected
    assert main(["plan", *line, "--print-spec"]) == 0
    assert capsys.readouterr().out == printed
    assert not Path(load_settings().store_url).exists(), "nothing was run"


def test_a_spec_file_can_be_printed_with_what_changes_it(project, capsys):
    (project / "deep").mkdir()
    (project / "deep/spec.yaml").write_text("tasks: [{path: ../tasks, agent: oracle}]\n")
    expected = keys(capsys, "deep/spec.yaml", "--set", "rollouts=2")
    assert main(["run", "deep/spec.yaml", "--set", "rollouts=2", "--parallel", "3", "--print-spec"]) == 0
    printed = capsys.readouterr().out
    assert "rollouts = 2" in printed
    assert "parallel = 3" in printed
    (project / "printed.toml").write_text(printed)
    assert keys(capsys, "printed.toml") == expected


@pytest.mark.needs("bubblewrap")
def test_one_line_runs_and_its_spec_is_stored(project, capsys):
    assert main(["run", "-t", "tasks/hello", "-a", "oracle", "--set", "sandbox.host_root=true"]) == 0
    assert "100 %" in capsys.readouterr().out
    with open_store(load_settings().store_url, create=False) as store:
        info = store.run(store.runs()[0].id)
    assert info.name == "hello"
    assert info.spec == {
        "name": "hello",
        "sandbox": {"host_root": True},
        "base_dir": str(project),
        "agent": "oracle",
        "tasks": [{"path": "tasks/hello"}],
    }
    assert info.resolved["base_dir"] == str(project)


def test_a_zip_can_be_given(project, capsys):
    with zipfile.ZipFile("hello.zip", "w") as archive:
        for each in (project / "tasks/hello").rglob("*"):
            if each.is_file():
                archive.write(each, each.relative_to(project / "tasks"))
    assert main(["plan", "-t", "hello.zip", "-a", "oracle"]) == 0
    assert "t/hello × oracle" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing to run: give a SPEC file, or tasks and an agent: proctor run -t tasks/hello -a oracle"),
        (["-t", "tasks"], "-a is missing: which agent? Known agents: oracle, nop, command"),
        (["-a", "oracle"], "nothing to run"),
        (["-t", "tasks", "-a", "orcale"], "did you mean 'oracle'"),
        (["-t", "none", "-a", "oracle"], "none: no such task folder, dataset or ZIP"),
        (["spec.toml", "-t", "tasks", "-a", "oracle"], "-t cannot be combined with the file spec.toml"),
        (["spec.toml", "-d", "x@1"], "-d cannot be combined with the file spec.toml"),
        (
            ["spec.toml", "-n", "3"],
            "-n cannot be combined with the file spec.toml; change a file's keys with --set",
        ),
        (["-t", "tasks/hello", "tasks/world"], "give every path its own -t: -t tasks/hello -t tasks/world"),
        (["-t", "tasks", "-a", "oracle", "-n", "0"], "expected a whole number of at least 1, found 0"),
        (["-t", "tasks", "-a", "oracle", "--env", "A"], "--env A: expected KEY=VALUE"),
        (["-t", "tasks", "-a", "oracle", "--timeout-s", "-1"], "timeout_s: expected more than 0"),
        (["-t", "tasks", "-a", "oracle", "--name", "../x"], "is not a valid name"),
        (["-t", "tasks", "-a", "oracle", "--agent-option", "x=1"], "is not an option of agent"),
        (["-t", "tasks", "-a", "oracle", "--set", "rolouts=2"], "did you mean 'rollouts'"),
        (["tasks/hello"], "to run the tasks in it: proctor run -t tasks/hello -a oracle"),
        (["tasks"], "to run the tasks in it: proctor run -t tasks -a oracle"),
        (["hello.zip"], "a ZIP, not a spec file; to run the task in it: proctor run -t hello.zip -a oracle"),
        (
            ["-d", "set@1", "-a", "oracle"],
            "no registry file is known; name one in the setting dataset_registries",
        ),
        (["-t", "tasks", "-a", "oracle", "-a", "oracle"], "'oracle' is listed twice"),
    ],
)
@pytest.mark.parametrize("command", ["run", "plan"])
def test_mistakes_are_told_in_a_sentence_before_anything_starts(project, capsys, command, words, message):
    assert main([command, *words]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.out == ""
    assert not Path(load_settings().store_url).exists()
