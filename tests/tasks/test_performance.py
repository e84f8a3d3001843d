from __future__ import annotations

from pathlib import Path

import pytest

from proctor.errors import TaskError
from proctor.tasks.lint.check import check_task
from proctor.tasks.read import read_task, refusals

HEAD = '[verifier.performance]\ncommand = "./run $PROCTOR_SEED"\n'
GOOD = f'{HEAD}reference = "best"\n'


def make(folder: Path, toml: str, **files: str) -> Path:
    contents = {
        "task.toml": toml,
        "instruction.md": "Make the program in /app faster.\n",
        "environment/Dockerfile": "FROM debian:bookworm-slim\n",
        "tests/test.sh": "true && echo 1 > /logs/verifier/reward.txt\n",
        "best/run": "echo 1\n",
        "steps/one/instruction.md": "First.\n",
        **files,
    }
    for name, text in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_a_table_has_defaults(tmp_path):
    spec = read_task(make(tmp_path, GOOD)).verifier.performance
    assert spec is not None
    assert (spec.metric, spec.direction, spec.rounds, spec.target) == ("time", "lower", 15, 2.0)
    assert spec.reference == tmp_path / "best"


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        (HEAD, ":1: [verifier.performance] has no 'reference'; name the folder"),
        ('[verifier.performance]\nreference = "best"\n', ":1: 'command' must be a command line"),
        (f'{HEAD}reference = "worst"\n', ":3: "),
        (f'{HEAD}reference = "../best"\n', ":3: 'reference' must be the relative path"),
        (f'{HEAD}reference = "environment"\n', ":3: 'reference' must be outside of environment/"),
        (f'{GOOD}metric = "speed"\n', ":4: 'metric' must be time, cpu, memory or custom"),
        (f'{GOOD}direction = "up"\n', ":4: 'direction' must be lower or higher"),
        (f'{GOOD}direction = "higher"\n', ":4: 'direction' must be lower: less time is better"),
        (f"{GOOD}rounds = 5\n", ":4: 'rounds' must be a whole number between 6 and 200"),
        (f"{GOOD}rounds = 7.5\n", ":4: 'rounds' must be a whole number"),
        (f"{GOOD}target = 1\n", ":4: 'target' must be more than 1"),
        (f"{GOOD}precision = 2\n", ":4: 'precision' must be between 0 and 1"),
        (f"{GOOD}inputs = 3\n", ":4: 'inputs' must be a command line"),
        (f'{GOOD}[[steps]]\nname = "one"\n', ":1: [verifier.performance] is for tasks without steps"),
    ],
)
def test_what_is_wrong_has_a_line(tmp_path, toml, said):
    with pytest.raises(TaskError) as caught:
        read_task(make(tmp_path, toml))
    assert said in str(caught.value)


def test_a_task_without_a_reference_is_an_error_of_the_check_with_its_line(tmp_path):
    (finding,) = check_task(make(tmp_path, HEAD)).findings
    assert (finding.level, finding.place) == ("error", f"{tmp_path}/task.toml:1")


def test_compose_services_cannot_be_measured(tmp_path):
    folder = make(tmp_path, GOOD, **{"environment/docker-compose.yaml": "services: {}\n"})
    assert any("not compose services" in each for each in refusals(read_task(folder)))


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        (GOOD.replace("$PROCTOR_SEED", "7"), "every round has the same input"),
        (f'{GOOD}metric = "custom"\n', "the number comes from the measured program itself"),
    ],
)
def test_what_a_program_could_cheat_with_is_a_warning(tmp_path, toml, said):
    found = [each for each in check_task(make(tmp_path, toml)).findings if said in each.message]
    assert [(each.level, each.place) for each in found] == [("warning", f"{tmp_path}/task.toml:1")]


def test_a_sound_table_and_a_task_without_one_have_no_warning(tmp_path):
    for at, toml in enumerate(
        (GOOD, f'{HEAD.replace("./run", "/tests/run")}reference = "best"\nmetric = "custom"\n', "")
    ):
        found = check_task(make(tmp_path / str(at), toml)).findings
        assert not [each for each in found if "task.toml" in each.place]
