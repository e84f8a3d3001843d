from __future__ import annotations

import json

import pytest

from proctor.errors import SpecError
from proctor.model.spec import Spec
from proctor.spec.command_line import spec_mapping
from proctor.spec.load import from_mapping, load
from proctor.spec.secrets import concealed, hidden

ENVIRON = {"N": "4", "DIR": "tasks", "API_TOKEN": "tok-1", "URL": "http://u:password@h", "X": "ex ${N}"}


def read(data, environ=ENVIRON) -> Spec:
    return from_mapping({"tasks": ["t"], **data}, environ=environ)


def test_variables_are_filled_in_and_numbers_stay_numbers():
    spec = read(
        {"tasks": ["${DIR}/a"], "rollouts": "${N}", "timeout_s": "${T:-2.5}", "tags": ["v${N}", "$${N}"]}
    )
    assert spec.tasks[0].path == "tasks/a"
    assert spec.tasks[0].rollouts == 4
    assert spec.timeout_s == 2.5
    assert spec.tags == ("v4", "${N}")


def test_a_variable_that_is_not_set_is_named_with_its_place(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("tasks: [a]\nmodel: ${NOT_SET}\n")
    with pytest.raises(SpecError, match=r"a.yaml:2:8.*\$\{NOT_SET\} is not set in the environment"):
        load(file, environ={})


def test_templates_of_the_command_agent_and_notes_are_left_alone():
    options = {"command": "echo ${instruction}", "install": "${X}"}
    spec = read({"agent": "command", "agent_options": options, "notes": "${NOT_SET}"})
    assert spec.tasks[0].agent_options == options
    assert spec.notes == "${NOT_SET}"


def test_secrets_become_references_by_key_by_variable_by_grant_by_value_and_by_mark():
    spec = read(
        {
            "pass_env": ["N"],
            "agent_options": {
                "api_key": "${DIR}",
                "plain": "${API_TOKEN}",
                "granted": "${N}",
                "address": "${URL}",
                "marked": {"secret": "DIR"},
                "header": ["Bearer ${API_TOKEN} ${X}"],
                "open": "${DIR}",
            },
        }
    )
    assert spec.tasks[0].agent_options == {
        "api_key": {"secret": "DIR"},
        "plain": {"secret": "API_TOKEN"},
        "granted": {"secret": "N"},
        "address": {"secret": "URL"},
        "marked": {"secret": "DIR"},
        "header": [{"secret": "Bearer ${API_TOKEN} ex $${N}"}],
        "open": "tasks",
    }
    assert spec.secrets == {}
    assert "tok-1" not in json.dumps(spec.to_mapping())
    assert from_mapping(spec.to_mapping()) == spec


def test_a_literal_becomes_a_reference_and_its_value_is_never_part_of_the_plain_data():
    spec = read(
        {
            "environment_variables": {"DB_PASSWORD": "hunter2", "PLAIN": "x", "OTHER_PASSWORD": "hunter2"},
            "sweep": {"A_TOKEN": ["one-token", "two-token"]},
            "agent_options": {"nested": {"api_key": "literal-key"}, "secret": "itself", "max_tokens": "4096"},
        }
    )
    assert spec.secrets == {
        "SPEC_DB_PASSWORD": "hunter2",
        "SPEC_A_TOKEN": "one-token",
        "SPEC_A_TOKEN_2": "two-token",
        "SPEC_API_KEY": "literal-key",
        "SPEC_SECRET": "itself",
    }
    kept = json.dumps(spec.to_mapping())
    assert not [value for value in spec.secrets.values() if value in kept and value != "itself"]
    assert spec.tasks[0].environment_variables["OTHER_PASSWORD"] == {"secret": "SPEC_DB_PASSWORD"}
    assert spec.tasks[0].agent_options["max_tokens"] == "4096"
    assert "hunter2" not in repr(spec)
    assert from_mapping(spec.to_mapping()).to_mapping() == spec.to_mapping()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"model": "${API_TOKEN}"}, "looks secret, and this value is stored"),
        ({"model": "${PROCTOR_MODEL_API_KEY}"}, "a setting of Proctor's own"),
        ({"agent_options": {"a": {"secret": "PROCTOR_STORE"}}}, "a setting of Proctor's own"),
        ({"agent_options": {"a": {"secret": "no name"}}}, "takes the name of an environment variable"),
        ({"agent_options": {"a": {"secret": 5}}}, "takes the name of an environment variable"),
        ({"pass_env": ["PROCTOR_MODEL_API_KEY"]}, "which no task gets"),
        ({"pass_env": "a b"}, "not the name of an environment variable"),
        ({"pass_env": 5}, "the name of an environment variable or a list"),
    ],
)
def test_what_would_be_stored_or_is_not_granted_is_refused(data, said):
    with pytest.raises(SpecError, match=said):
        from_mapping({"tasks": ["t"], **data}, environ={**ENVIRON, "PROCTOR_MODEL_API_KEY": "k"})


def test_pass_env_is_refused_for_experiments():
    with pytest.raises(SpecError, match="'pass_env' is for tasks"):
        from_mapping({"experiment": "a", "pass_env": "N"})


def test_params_of_an_experiment_may_be_secret():
    data = {"experiment": "a", "params": {"api_key": "${API_TOKEN}", "n": "${N}"}}
    assert from_mapping(data, environ=ENVIRON).experiments[0].params == {
        "api_key": {"secret": "API_TOKEN"},
        "n": 4,
    }


def test_the_address_of_a_dataset_may_hold_a_token():
    spec = read({"tasks": [{"dataset": "git+https://${API_TOKEN}@h/r.git"}]})
    assert spec.tasks[0].path == "git+https://tok-1@h/r.git"


def test_one_line_grants_and_fills_in():
    line = spec_mapping(
        ("t",), agent=("oracle",), environment_variables={"A": "${API_TOKEN}"}, pass_env=("N",)
    )
    spec = from_mapping(line, base_dir=".", environ=ENVIRON)
    assert spec.pass_env == ("N",)
    assert spec.tasks[0].environment_variables == {"A": {"secret": "API_TOKEN"}}


def test_an_override_with_a_secret_is_not_quoted():
    with pytest.raises(SpecError) as caught:
        from_mapping({"tasks": ["t"]}, overrides=["agent_options.api_key=[hunter2"])
    assert "hunter2" not in str(caught.value)


def test_what_was_written_is_kept_without_its_secrets():
    literals = {"SPEC_KEY": "hunter2", "SPEC_PIN": "12"}
    written = {"a": ["hunter2", "x hunter2 y", 5, "12", "a12"]}
    assert hidden(written, literals) == {
        "a": [{"secret": "SPEC_KEY"}, "x [redacted:SPEC_KEY] y", 5, {"secret": "SPEC_PIN"}, "a12"]
    }


def test_secret_variables_of_an_overrides_file_are_concealed():
    content = {
        "environment_variables": {"A_TOKEN": "one-token", "B": "b"},
        "evaluation": {"environment_variables": {"C_KEY": "two-token"}, "timeout_sec": 5},
    }
    data, found = concealed(content)
    assert found == {"SPEC_A_TOKEN": "one-token", "SPEC_C_KEY": "two-token"}
    assert data["environment_variables"] == {"A_TOKEN": {"secret": "SPEC_A_TOKEN"}, "B": "b"}
    assert data["evaluation"]["timeout_sec"] == 5
    assert concealed({"environment_variables": 5}) == ({"environment_variables": 5}, {})
