"""Which variables tasks get, and which secrets a run needs, decided before anything is written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from proctor.cli.main import main
from proctor.errors import TaskError, UsageError
from proctor.model.plan import Plan
from proctor.model.spec import Spec, TaskEntry
from proctor.runs.grants import check_grants
from proctor.runs.secrets import check_secrets, granted, known_secrets, redactor_for, with_advice
from proctor.settings import Settings, load_settings
from proctor.spec.load import from_mapping
from proctor.store.open import open_store
from proctor.tasks.read import read_task

PLANTED = "planted-value-123"


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROCTOR_SANDBOX", "fake")
    return tmp_path


def spec(**more) -> Spec:
    return from_mapping({"tasks": ["t"], **more}, environ={})


def everything_stored() -> bytes:
    places = [Path(os.environ[f"PROCTOR_{name}"]) for name in ("HOME", "OUTPUT_DIR", "ROLLOUTS_DIR")]
    return b"".join(
        each.read_bytes() for place in places if place.exists() for each in place.rglob("*") if each.is_file()
    )


@pytest.mark.parametrize(
    ("table", "agent", "options", "said"),
    [
        ('[environment.env]\nA = "${WANTED}"', "nop", [], "the task uses ${WANTED} of this machine"),
        ('[verifier.env]\nA = "${WANTED}"', "nop", [], "grant it with pass_env"),
        ('[solution.env]\nA = "${WANTED}"', "oracle", [], "--pass-env WANTED"),
        ('[environment.env]\nA = "${NOT_SET}"', "nop", ["--pass-env", "NOT_SET"], "but it is not set"),
        ('[environment.env]\nA = "${PROCTOR_MODEL_API_KEY}"', "nop", [], "which no task gets"),
        ('[environment.env]\nA = "${WANTED}"', "nop", ["--pass-env", "PROCTOR_HOME"], "which no task gets"),
    ],
)
def test_a_variable_that_is_not_granted_ends_the_run_before_it_starts(
    make_task, capsys, monkeypatch, table, agent, options, said
):
    monkeypatch.setenv("WANTED", PLANTED)
    monkeypatch.setenv("PROCTOR_MODEL_API_KEY", PLANTED)
    task = make_task("t", environment=f"{table}\n")
    assert main(["run", "-t", str(task), "-a", agent, *options]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
    assert not list(Path(os.environ["PROCTOR_ROLLOUTS_DIR"]).rglob("*"))


def test_a_default_a_grant_and_a_variable_of_the_spec_are_enough(make_task):
    environment = '[environment.env]\nA = "${A}"\nB = "${B:-b}"\nC = "${C}"\n[solution.env]\nD = "${D}"\n'
    task = read_task(make_task("t", environment=environment))
    entry = TaskEntry(path="t", agents=("nop",), environment_variables={"A": "a"})
    granting = Spec(name="s", tasks=(entry,), pass_env=("C",))
    check_grants(granting, entry, task, {"C": "c", "D": "d"})
    with pytest.raises(TaskError, match=r"\$\{C\}"):
        check_grants(Spec(name="s", tasks=(entry,)), entry, task, {"C": "c"})


def test_pass_env_adds_to_the_grants_of_a_spec_file(make_task, capsys, monkeypatch):
    for name in ("ONE", "TWO"):
        monkeypatch.setenv(name, PLANTED)
    task = make_task("t", environment='[environment.env]\nA = "${ONE}"\nB = "${TWO}"\n')
    data = {"tasks": [str(task)], "pass_env": "ONE", "env": {"C": "${TWO}"}}
    Path("s.json").write_text(json.dumps(data))
    assert main(["plan", "s.json"]) == 2
    assert "grant it with" in capsys.readouterr().err
    assert main(["plan", "s.json", "--pass-env", "TWO", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["resolved"]["pass_env"] == ["ONE", "TWO"]
    assert found["trials"][0]["overrides"]["environment_variables"] == {"C": {"secret": "TWO"}}
    Path("e.json").write_text('{"experiment": "a"}')
    assert main(["plan", "e.json", "--pass-env", "TWO"]) == 2
    assert "--pass-env is for tasks" in capsys.readouterr().err


def test_compose_files_get_granted_variables_only(make_task):
    folder = make_task("t")
    (folder / "environment" / "docker-compose.yaml").write_text(
        "services:\n  main:\n    environment:\n      A: ${WANTED}\n      B: ${OTHER:-b}\n      C: $$X $CPUS\n"
    )
    task, entry = read_task(folder), TaskEntry(path="t")
    with pytest.raises(TaskError, match=r"docker-compose.yaml: the task uses \$\{WANTED\}"):
        check_grants(Spec(name="s", tasks=(entry,)), entry, task, {"WANTED": "x"})
    check_grants(Spec(name="s", tasks=(entry,), pass_env=("WANTED",)), entry, task, {"WANTED": "x"})


def test_credentials_of_proctor_are_not_handed_on_under_another_name():
    settings = Settings(model_api_key="own-key-12345", model_base_url="http://u:own-pass-1@h")
    for environ in ({"A": "own-key-12345"}, {"A": "own-pass-1"}):
        with pytest.raises(UsageError, match="pass_env grants A, which holds a credential of Proctor's own"):
            check_secrets(spec(pass_env=["A"]), settings, environ)
        with pytest.raises(UsageError, match="the spec uses A"):
            check_secrets(spec(agent_options={"x": {"secret": "A"}}), settings, environ)
    check_secrets(spec(pass_env=["A"]), settings, {"A": "another"})


def test_everything_secret_is_known_by_a_name():
    written = from_mapping(
        {
            "tasks": [{"dataset": "git+https://u:git-pass-1@h/r.git"}],
            "pass_env": ["GRANTED"],
            "agent_options": {"api_key": "literal-1", "b": {"secret": "Bearer ${NAMED}"}},
        },
        environ={},
    )
    settings = Settings(model_api_key="model-1", store="postgresql://u:store-pass@h/db")
    environ = {"GRANTED": "granted-1", "NAMED": "named-1", "OTHER_TOKEN": "other-123", "HOME": "/home/x"}
    found = known_secrets(written, settings, environ)
    assert found == {
        "OTHER_TOKEN": "other-123",
        "MODEL_TOKEN": "model-1",
        "store": "store-pass",
        "dataset.0": "git-pass-1",
        "GRANTED": "granted-1",
        "NAMED": "named-1",
        "SPEC_API_KEY": "literal-1",
    }
    assert redactor_for(written, settings, environ).text("a named-1 b") == "a [redacted:NAMED] b"
    assert granted(written, environ) == {"GRANTED": "granted-1"}


def test_literals_and_short_secrets_are_noted_in_the_plan():
    written = from_mapping({"tasks": ["t"], "pass_env": "A_TOKEN", "env": {"DB_PASSWORD": "abc"}}, environ={})
    notes = with_advice(Plan(trials=()), written, {"A_TOKEN": "ab"}).warnings
    assert notes[0].startswith("the spec itself holds the secret 'db_password'; it is not stored")
    assert [each.partition(" has fewer")[0] for each in notes[1:]] == [
        "the value of A_TOKEN",
        "the value of SPEC_DB_PASSWORD",
    ]


def test_keys_depend_on_the_name_of_a_secret_and_never_on_its_value(make_task, capsys, monkeypatch):
    task = make_task("t")
    keys = []
    for name, value in (("A_TOKEN", "one-value"), ("A_TOKEN", "two-value"), ("B_TOKEN", "one-value")):
        monkeypatch.setenv(name, value)
        options = {"command": "true", "env": {"X": f"${{{name}}}"}}
        data = {
            "tasks": [str(task)],
            "agent": "command",
            "agent_options": options,
            "env": {"Y": f"${{{name}}}"},
        }
        Path("s.json").write_text(json.dumps(data))
        assert main(["plan", "s.json", "--json"]) == 0
        keys.append(json.loads(capsys.readouterr().out)["trials"][0]["key"])
    assert keys[0] == keys[1] != keys[2]


def test_a_run_stores_references_and_resume_asks_for_what_is_missing(make_task, capsys, monkeypatch):
    task = make_task("t")
    monkeypatch.setenv("A_TOKEN", PLANTED)
    data = {
        "tasks": [str(task)],
        "agent": "nop",
        "env": {"X": "${A_TOKEN}", "MY_PASSWORD": f"{PLANTED}-literal"},
    }
    Path("s.json").write_text(json.dumps(data))
    assert main(["run", "s.json"]) in {0, 1, 4}
    capsys.readouterr()
    stored = everything_stored()
    assert PLANTED.encode() not in stored
    with open_store(load_settings().store_url) as store:
        info = store.run("latest")
    assert info.resolved["tasks"][0]["environment_variables"] == {
        "X": {"secret": "A_TOKEN"},
        "MY_PASSWORD": {"secret": "SPEC_MY_PASSWORD"},
    }
    assert main(["resume", "latest"]) == 2
    assert "the spec needs the secret SPEC_MY_PASSWORD" in capsys.readouterr().err
    monkeypatch.setenv("SPEC_MY_PASSWORD", f"{PLANTED}-literal")
    assert main(["resume", "latest"]) in {0, 1, 4}
    monkeypatch.delenv("A_TOKEN")
    assert main(["resume", "latest"]) == 2
    assert "set the environment variable A_TOKEN" in capsys.readouterr().err
