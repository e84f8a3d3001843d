"""Typical mistakes of a first day: each gives one clear sentence and exit code 2 before anything starts."""

from __future__ import annotations

import os
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from proctor.cli.main import main

TASK = 'schema_version = "1.4"\n[task]\nname = "mistakes/one"\n[environment]\nnetwork_mode = "no-network"\n'
SPEC = 'name = "mistake"\n[[tasks]]\npath = "good"\nagent = "oracle"\n'
EXPERIMENT = "experiment: memory_db\n"


@dataclass(frozen=True)
class Mistake:
    """What a person typed, what was in the folder, and words that the answer must have."""

    typed: str
    says: tuple[str, ...]
    files: dict[str, str | bytes] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)


def spec(text: str, *says: str, suffix: str = "yaml") -> Mistake:
    """A mistake inside a spec file."""
    return Mistake(f"run spec.{suffix}", (f"spec.{suffix}", *says), {f"spec.{suffix}": text})


def tasks(entry: str, *says: str, after: str = "") -> Mistake:
    """A mistake in a `[[tasks]]` table, or in `[sandbox]` behind it."""
    text = f'name = "mistake"\n[[tasks]]\n{entry}\n{after}'
    return Mistake("run spec.toml", says, {"spec.toml": text})


def task(files: dict[str, str], *says: str) -> Mistake:
    """A mistake in the only task of a run. An empty text leaves the file out."""
    inside = {f"bad/{name}": text for name, text in files.items()}
    text = SPEC.replace("good", "bad")
    return Mistake("run spec.toml", says, {"spec.toml": text, **inside})


MISTAKES = {
    "a command that does not exist": Mistake("runn", ("'runn'", "did you mean 'run'?")),
    "no spec and no tasks": Mistake("run", ("SPEC", "proctor run --help")),
    "a spec file that is not there": Mistake("run missing.yaml", ("missing.yaml", "does not exist")),
    "a folder of specs": Mistake("run folder", ("folder", "a.yaml"), {"folder/a.yaml": EXPERIMENT}),
    "a task folder in place of a spec": Mistake("run good", ("good", "-t good")),
    "a ZIP in place of a spec": Mistake("run a.zip", ("a.zip", "-t a.zip"), {"a.zip": b"PK"}),
    "a file of another kind": Mistake("run notes.txt", ("notes.txt", ".yaml"), {"notes.txt": EXPERIMENT}),
    "an empty spec": spec("", "empty"),
    "a list in place of a mapping": spec("- a\n- b\n", "1:1", "list"),
    "a binary file": Mistake("run spec.yaml", ("spec.yaml:1:1", "UTF-8"), {"spec.yaml": b"\xff\xfe\x00"}),
    "tabs in YAML": spec("experiment: memory_db\n\tseed: 3\n", "2:1", "spaces"),
    "broken TOML": spec("experiment = \n", "1:14", suffix="toml"),
    "broken JSON": spec('{"experiment": "memory_db",}', "comma", suffix="json"),
    "a key twice": spec("experiment: memory_db\nexperiment: memory_db\n", "2:1", "twice"),
    "a misspelt key": spec(f"{EXPERIMENT}itertions: {{measured: 3}}\n", "2:1", "did you mean 'iterations'?"),
    "neither experiment nor tasks": spec("name: x\n", "experiment", "tasks"),
    "both experiment and tasks": spec(f"{EXPERIMENT}tasks: [{{path: good, agent: nop}}]\n", "2:1", "tasks"),
    "an unknown experiment": spec("experiment: memory_bd\n", "did you mean 'memory_db'?"),
    "text for a number": spec(f"{EXPERIMENT}iterations: {{measured: many}}\n", "2:", "'many'"),
    "a negative count": spec(f"{EXPERIMENT}iterations: {{measured: -1}}\n", "2:", "-1"),
    "an unknown parameter": spec(f"{EXPERIMENT}params: {{num_step: 3}}\n", "num_step"),
    "a parameter of the wrong type": spec(f"{EXPERIMENT}params: {{steps: ten}}\n", "steps"),
    "an empty sweep": spec(f"{EXPERIMENT}sweep: {{steps: []}}\n", "2:", "empty"),
    "an unknown strategy": spec(
        f"{EXPERIMENT}sweep: {{steps: [1]}}\nstrategy: grid\n", "'grid'", "cartesian"
    ),
    "an unknown instrument": spec(f"{EXPERIMENT}instrumentation: [timming]\n", "timming", "timing"),
    "a gate rule with a slip": spec(f'{EXPERIMENT}gates: ["duration_s =< 3"]\n', "=<"),
    "--set without a value": Mistake("run spec.toml --set x", ("--set x", "="), {"spec.toml": SPEC}),
    "--set of an unknown key": Mistake(
        "run spec.toml --set sandbox.netwrk=none", ("netwrk", "did you mean 'network'?"), {"spec.toml": SPEC}
    ),
    "no trial at a time": Mistake("run spec.toml --parallel 0", ("--parallel", "0"), {"spec.toml": SPEC}),
    "a word for a number": Mistake(
        "run spec.toml --parallel two", ("--parallel", "'two'"), {"spec.toml": SPEC}
    ),
    "an option that does not exist": Mistake("run spec.toml --paralel 2", ("--paralel", "--parallel")),
    "an unknown agent": tasks('path = "good"\nagent = "orcle"', "'orcle'", "did you mean 'oracle'?"),
    "an agent without the model it needs": tasks('path = "good"\nagent = "terminal"', "terminal", "model"),
    "tasks that are not there": tasks('path = "absent"\nagent = "oracle"', "absent"),
    "a folder without tasks": Mistake(
        "run spec.toml",
        ("folder", "task.toml"),
        {"spec.toml": SPEC.replace("good", "folder"), "folder/readme.md": "x"},
    ),
    "no rollouts": tasks('path = "good"\nagent = "oracle"\nrollouts = 0', "rollouts", "0"),
    "rollout for rollouts": tasks('path = "good"\nagent = "oracle"\nrollout = 5', "did you mean 'rollouts'?"),
    "an unknown sandbox": tasks(
        'path = "good"\nagent = "oracle"',
        "did you mean 'bubblewrap'?",
        after='[sandbox]\nbackend = "bubblwrap"',
    ),
    "an unknown network": tasks(
        'path = "good"\nagent = "oracle"', "'internet'", "public", after='[sandbox]\nnetwork = "internet"'
    ),
    "a range that is none": tasks(
        'path = "good"\nagent = "oracle"', "10.0.0.0/99", after='[sandbox]\nnetwork_allow = "10.0.0.0/99"'
    ),
    "negative memory": tasks('path = "good"\nagent = "oracle"', "memory", after="[sandbox]\nmemory_mb = -5"),
    "tasks without an agent": Mistake("run -t good", ("-a", "oracle")),
    "tasks on the line that are not there": Mistake("run -t absent -a oracle", ("absent",)),
    "an agent on the line that is not known": Mistake("run -t good -a orcle", ("did you mean 'oracle'?",)),
    "a spec and tasks": Mistake("run spec.toml -t good -a oracle", ("-t",), {"spec.toml": SPEC}),
    "a dataset of no registry": Mistake(
        "run -d terminal-bench@2.0 -a oracle", ("terminal-bench", "dataset_registries")
    ),
    "a git address without a host": Mistake("run -d git+https:// -a oracle", ("HOST/REPOSITORY",)),
    "a ZIP that leads out": Mistake("run -t evil.zip -a oracle", ("evil.zip", "'../evil'")),
    "a file that is no ZIP": Mistake("run -t fake.zip -a oracle", ("fake.zip", "ZIP"), {"fake.zip": "hello"}),
    "a ZIP without a task": Mistake("run -t plain.zip -a oracle", ("plain.zip", "task.toml")),
    "a task without instruction": task({"instruction.md": ""}, "instruction.md"),
    "a task without tests": task({"tests/test.sh": ""}, "tests/test.sh"),
    "a task.toml that is not TOML": task({"task.toml": "schema_version = \n"}, "task.toml", "TOML"),
    "text for a time limit": task({"task.toml": f'{TASK}[agent]\ntimeout_sec = "long"\n'}, "timeout_sec"),
    "an unknown network of a task": task(
        {"task.toml": '[environment]\nnetwork_mode = "sometimes"\n'}, "network_mode", "'sometimes'"
    ),
    "an unknown run": Mistake("show absent", ("no run named 'absent'", "proctor ls")),
    "unknown runs to compare": Mistake("compare one two", ("'one'",)),
    "a file that is no result": Mistake("compare notes.txt notes.txt", ("notes.txt",), {"notes.txt": "x"}),
    "an unknown run to gate": Mistake("gate absent", ("no run named 'absent'",)),
    "an unknown run to resume": Mistake("resume absent", ("no run named 'absent'",)),
    "an unknown run's logs": Mistake("logs absent", ("no run named 'absent'",)),
    "a status that does not exist": Mistake("ls --status stuck", ("'stuck'", "running")),
    "a receipt that is no receipt": Mistake("verify fake.zip", ("fake.zip",), {"fake.zip": "hello"}),
    "an image that is no image": Mistake("images import fake.tar", ("fake.tar",), {"fake.tar": "hello"}),
    "an image name with capitals": Mistake("images pull Ubuntu:24.04", ("Ubuntu",)),
    "a folder to import that is no run": Mistake("import good", ("good", "manifest.json")),
    "checking a folder without tasks": Mistake("tasks check folder", ("folder",), {"folder/a.txt": "x"}),
    "a name that cannot be one": Mistake("new task ../x", ("../x",)),
    "experiments that are not there": Mistake("list --experiments absent", ("absent",)),
    "nothing to time": Mistake("time", ("proctor time --help",)),
    "a setting of the wrong type": Mistake("ls", ("lease_s", "'long'"), env={"PROCTOR_LEASE_S": "long"}),
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one good task and three archives."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    _task(tmp_path / "good")
    for name, member in (("evil.zip", "../evil"), ("plain.zip", "a.txt")):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr(member, "x")
    return tmp_path


def _task(folder: Path) -> None:
    for name, text in {
        "task.toml": TASK,
        "instruction.md": "Do it.\n",
        "environment/Dockerfile": "FROM debian:bookworm-slim\n",
        "tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n",
        "solution/solve.sh": "true\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def _lay_out(files: dict[str, str | bytes]) -> None:
    if any(name.startswith("bad/") for name in files):
        _task(Path("bad"))
    for name, content in files.items():
        file = Path(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        if name.startswith("bad/") and not content:
            file.unlink()
        else:
            file.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_gives_one_sentence_and_starts_nothing(
    name: str, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    mistake = MISTAKES[name]
    _lay_out(mistake.files)
    for key, value in mistake.env.items():
        monkeypatch.setenv(key, value)
    before = sorted(place.rglob("*"))
    code = main(mistake.typed.split())
    shown = capsys.readouterr()
    assert code == 2, shown
    assert shown.out == ""
    lines = shown.err.strip().splitlines()
    assert len(lines) == 1, shown.err
    assert lines[0].startswith("proctor: ")
    assert len(lines[0]) <= 80 * 5, "five lines at 80 columns are enough for a sentence"
    for words in mistake.says:
        assert words in lines[0]
    assert sorted(place.rglob("*")) == before
    assert not _runs()


def _runs() -> list[Path]:
    places = (Path(os.environ["PROCTOR_OUTPUT_DIR"]), Path(os.environ["PROCTOR_ROLLOUTS_DIR"]))
    return [file for each in places for file in each.rglob("manifest.json")]


def test_there_are_at_least_sixty_of_them():
    assert len(MISTAKES) >= 60
