"""Files in, specs out; and what is wrong with a file is said with its place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import Exit, SpecError
from proctor.spec.load import MAX_SPEC_BYTES, from_mapping, load, written

FIXTURES = Path(__file__).parent / "fixtures"


def write(folder: Path, text: str | bytes, name: str = "spec.yaml") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refused(path: Path, *overrides: str) -> str:
    with pytest.raises(SpecError) as caught:
        load(path, overrides=overrides)
    assert caught.value.exit_code is Exit.USAGE
    return str(caught.value)


def problem(folder: Path, text: str | bytes, name: str = "spec.yaml") -> str:
    """The error of a file with this text, without the folder in front."""
    return refused(write(folder, text, name)).removeprefix(f"{folder}/")


def test_everything_a_short_spec_leaves_out_has_a_default(tmp_path: Path) -> None:
    spec = load(write(tmp_path, "experiment: demo\n", "short name.yaml"))
    assert (spec.name, spec.kind, spec.seed, spec.parallel) == ("short name", "experiment", 0, 1)
    body = spec.experiments[0]
    assert body.experiment == "demo"
    assert [each.name for each in body.instrumentation] == ["timing"]
    assert (body.iterations.warmup, body.iterations.measured) == (0, 1)
    assert spec.base_dir == str(tmp_path)


@pytest.mark.parametrize("name", ["(1).yaml", "...yaml", "a/b.yaml", "日本.yaml", "x" * 200 + ".yaml"])
def test_a_name_taken_from_the_file_can_always_be_a_folder(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    spec = load(write(path.parent, "experiment: demo", path.name))
    assert 0 < len(spec.name) <= 128
    (tmp_path / "made" / spec.name).mkdir(parents=True)


def test_a_misspelt_key_names_its_line_and_the_right_word_in_all_three_formats(tmp_path: Path) -> None:
    meant = "'rollout' is not a key here; did you mean 'rollouts'?"
    assert problem(tmp_path, "tasks:\n- path: a\n  rollout: 3\n") == f"spec.yaml:3:3: {meant}"
    toml = '[[tasks]]\npath = "a"\nrollout = 3\n'
    assert problem(tmp_path, toml, "spec.toml") == f"spec.toml:3:1: {meant}"
    text = '{"tasks": [\n {"path": "a",\n  "rollout": 3}]}'
    assert problem(tmp_path, text, "spec.json") == f"spec.json:3:3: {meant}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("experiment: a\nsed: 1", "spec.yaml:2:1: 'sed' is not a key here; did you mean 'seed'?"),
        ("experiment: a\nworkers: 1", "2:1: 'workers' is not a key here; did you mean 'parallel'?"),
        ("experiment: a\nOutput-Dir: x", "did you mean 'output_dir'?"),
        ("experiment: a\nzzz: 1", "'zzz' is not a key here; known: "),
        ("experimnt: a", "1:1: 'experimnt' is not a key here; did you mean 'experiment'?"),
        ("seed: 1", "1:1: nothing to measure"),
        ("- 1", "1:1: expected a mapping with 'experiment', 'experiments' or 'tasks', found a list"),
        ("experiment: a\ntasks: [b]", "2:1: 'experiment' and 'tasks' cannot be used together"),
        ("experiment: ''", "1:13: 'experiment': expected the name of an experiment, found empty text"),
        ("experiment: 5", "expected the name of an experiment, found the number 5"),
        ("experiment: a\nparams: 1", "2:9: 'params': expected a mapping, found the number 1"),
        ("experiment: a\nsweep: {n: 3}", "2:12: expected a list of values to sweep; one value belongs"),
        ("experiment: a\nsweep: {n: []}", "2:12: the list of values to sweep is empty"),
        ("experiment: a\nstrategy: rnd", "'rnd' is not allowed here; did you mean 'random'?"),
        ("experiment: a\nstrategy: [x]", "expected one of cartesian, random, found a list"),
        ("experiment: a\nstrategy: random", "2:1: 'strategy: random' needs 'samples'"),
        ("experiment: a\nsamples: 3", "2:1: 'samples' has no effect without 'strategy: random'"),
        ("experiment: a\niterations: {measured: 0}", "2:24: 'measured': expected at least 1, found 0"),
        ("experiment: a\niterations: {measured: many}", "expected a whole number or 'auto', found the text"),
        (
            "experiment: a\niterations: {mesured: 1}",
            "2:14: 'mesured' is not a key here; did you mean 'measured'?",
        ),
        ("experiment: a\niterations: [1]", "2:13: expected a number or a mapping, found a list"),
        ("experiment: a\niterations: {min_measured: 9, max_measured: 3}", "'min_measured' is more than"),
        ("experiment: a\niterations: {target_width: 0}", "expected more than 0, found 0"),
        (
            "experiment: a\ninstrumentation: 5",
            "2:18: 'instrumentation': expected a list of instruments, found the number 5",
        ),
        ("experiment: a\ninstrumentation: [5]", "2:19: expected an instrument's name"),
        ("experiment: a\ninstrumentation: [{a: 1, b: 2}]", "2:19: the instrument has no name"),
        ("experiment: a\ninstrumentation: [timing, timing]", "2:27: the instrument 'timing' is listed twice"),
        ("experiment: a\nloops: 0", "expected at least 1"),
        ("experiment: a\ngc: maybe", "'maybe' is not allowed here; known: disabled, enabled"),
        ("experiment: a\nseed: 1.5", "2:7: 'seed': expected a whole number, found the number 1.5"),
        ("experiment: a\nseed: true", "expected a whole number, found true"),
        ("experiment: a\nseed: 99999999999999999999", "expected at most 9223372036854775807"),
        ("experiment: a\nseed: -1", "expected at least 0, found -1"),
        ("experiment: a\ntimeout_s: 0", "expected more than 0, found 0"),
        ("experiment: a\ntimeout_s: soon", "expected a number, found the text 'soon'"),
        ("experiment: a\ntimeout_s: " + "9" * 400, "the number is too large"),
        ("experiment: a\nbudget_usd: -1", "expected at least 0, found -1"),
        ("experiment: a\nparallel: 0", "expected at least 1, found 0"),
        ("experiment: a\nname: ../../etc", "2:7: 'name': '../../etc' is not a valid name"),
        ("experiment: a\nnotes: [1]", "expected text, found a list"),
        ("experiment: a\ntags: [[1]]", "2:8: expected one value, found a list"),
        ("experiment: a\nengine: cellery", "did you mean 'celery'?"),
        ("experiment: a\nretries: {provider: x}", "expected a whole number"),
        ("experiment: a\nretries: x", "expected a number or a mapping, found the text 'x'"),
        ("experiment: a\nsandbox: {memory: 1}", "'memory' is not a key here; did you mean 'memory_bytes'?"),
        ("experiment: a\nsandbox: {cpus: 0}", "expected more than 0"),
        (
            "experiment: a\nparallelism: 2\nparallel: 3",
            "2:1: 'parallelism' means the same as 'parallel', which is also given",
        ),
        ("experiments: []", "1:14: the list is empty; give at least one experiment"),
        ("experiments: [3]", "1:15: expected a mapping, found the number 3"),
        ("experiments: 3", "1:14: expected a list with one mapping for each experiment"),
        ("experiments:\n- params: {}", "2:3: 'experiment' is missing"),
        ("experiments:\n- experiment: a\n  seed: 3", "3:3: 'seed' belongs at the top of the spec, not here"),
        ("experiments: [a]\nparams: {}", "2:1: 'params' is not a key here"),
        ("tasks: 5", "1:8: expected a list with one mapping for each task entry"),
        (
            "tasks: [{agent: a}]",
            "1:9: a task entry has exactly one of path, prepared_dir, dataset, zip; found none",
        ),
        ("tasks: [{path: a, zip: b}]", "1:19: a task entry has exactly one of"),
        ("tasks: [{path: a, agent: []}]", "found an empty list"),
        ("tasks: [{path: a, agent: [x, y, x]}]", "1:33: 'x' is listed twice"),
        (
            "tasks: [{path: a, agent: 5}]",
            "expected the name of an agent or a list of them, found the number 5",
        ),
        ("tasks: [{path: a, model: [null, 5]}]", "expected text, found the number 5"),
        ("tasks: [{path: a, rollouts: many}]", "expected a whole number"),
        ("tasks: [{path: a, apply_overrides: 1}]", "expected true or false, found the number 1"),
        ("tasks: [{path: a, overrides: 1}]", "expected a path or a mapping of overrides"),
        ("tasks: [{path: a, environment_variables: {A: [1]}}]", "to vary it, put the list under 'sweep'"),
        ("tasks: [{path: a, environment_variables: {A: }}]", "expected one value, found nothing"),
        (
            "tasks: [{path: a, environment_variables: {'A=B': 1}}]",
            "'A=B' cannot be the name of an environment",
        ),
        ('tasks: [{path: a, environment_variables: {A: "\\0"}}]', "cannot hold the character U+0000"),
        ("tasks: [{path: a, sweep: {A: 1}}]", "expected a list of values to sweep"),
        ("tasks: [{path: a, sweep: {A: []}}]", "the list of values to sweep is empty"),
        ("tasks: [{path: a, agent_options: 1}]", "expected a mapping"),
        ("tasks: [{path: a, seed: 1}]", "'seed' belongs at the top"),
        ("tasks: [{path: a, task_dir: b}]", "'task_dir' is not a key here; did you mean 'path'?"),
    ],
)
def test_what_is_wrong_is_said_where_it_is(tmp_path: Path, text: str, message: str) -> None:
    found = problem(tmp_path, text)
    assert found.startswith("spec.yaml:")
    assert message in found


def test_a_long_value_is_cut_in_a_message(tmp_path: Path) -> None:
    assert len(problem(tmp_path, "experiment: a\nseed: " + "x" * 5000)) < 200


def test_odd_files_give_clear_errors(tmp_path: Path) -> None:
    assert problem(tmp_path, "") == "spec.yaml:1:1: the spec is empty"
    assert problem(tmp_path, "# only a comment\n") == "spec.yaml:1:1: the spec is empty"
    assert problem(tmp_path, "null") == "spec.yaml:1:1: the spec is empty"
    assert problem(tmp_path, b"experiment: a\nnotes: \xff\n") == "spec.yaml:2:8: not UTF-8 text from here on"
    assert problem(tmp_path, "experiment: a".encode("utf-16")).startswith("spec.yaml:1:1: not UTF-8")
    assert problem(tmp_path, "x" * (MAX_SPEC_BYTES + 1)) == "spec.yaml: cannot be read: larger than 1 MiB"
    assert "the name ends in '.txt'; a spec is a file in .yaml" in problem(tmp_path, "x", "spec.txt")
    assert "the name has no suffix" in problem(tmp_path, "x", "spec")


def test_a_file_of_fifty_megabytes_is_refused_without_being_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as stream:
        stream.truncate(50_000_000)
    assert "larger than 1 MiB" in refused(path)


def test_a_missing_file_names_the_nearest_one(tmp_path: Path) -> None:
    write(tmp_path, "experiment: a", "baseline.yaml")
    assert refused(tmp_path / "baselin.yaml").endswith("does not exist; did you mean 'baseline.yaml'?")
    assert refused(tmp_path / "zzz.toml").endswith("the file does not exist")
    assert "there is no folder" in refused(tmp_path / "no" / "a.yaml")


def test_a_folder_says_which_specs_it_holds(tmp_path: Path) -> None:
    write(tmp_path, "experiment: a", "one.yaml")
    assert refused(tmp_path).endswith("a folder, not a spec file; it contains one.yaml")
    (tmp_path / "dir.yaml").mkdir()
    assert refused(tmp_path / "dir.yaml").endswith("a folder, not a spec file")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    assert refused(tmp_path / "pipe.yaml").endswith("not a plain file")


def test_a_path_that_no_file_can_have_is_refused() -> None:
    assert "the file does not exist" in refused(Path("a\0b.yaml"))
    assert "cannot be read: File name too long" in refused(Path("x" * 5000))
    assert "cannot be read: File name too long" in refused(Path("x" * 5000 + ".yaml"))


def test_a_byte_order_mark_and_windows_line_ends_do_not_move_places(tmp_path: Path) -> None:
    assert problem(tmp_path, b"\xef\xbb\xbfexperiment: a\r\nsed: 1\r\n").startswith("spec.yaml:2:1: 'sed'")
    toml = b'\xef\xbb\xbfexperiment = "a"\r\nsed = 1\r\n'
    assert problem(tmp_path, toml, "s.toml").startswith("s.toml:2:1: 'sed'")


def test_the_written_spec_is_kept_as_it_was(tmp_path: Path) -> None:
    path = write(tmp_path, "experiment: {name: a}\nparallelism: 2\nnotes:\n")
    assert written(path) == {"experiment": {"name": "a"}, "parallelism": 2, "notes": None}
    with pytest.raises(SpecError, match="a spec is a mapping"):
        written(write(tmp_path, "[1]", "list.json"))


def test_a_task_spec_has_all_its_keys_read(tmp_path: Path) -> None:
    text = """
    $schema: anything
    agent: [oracle, nop]
    rollouts: 2
    tasks:
    - dataset: tasks
      include: easy-*
      exclude: [broken, slow]
      model: [null, m1]
      agent_options: {steps: 5}
      apply_overrides: no
      overrides: {remove_repo_paths: [x]}
      environment_variables: {VERSION: 1.10, MODE: 0755, DEBUG: true, TEXT: a b}
      sweep: {LEVEL: [1, 2.50]}
    - zip: b.zip
      agent: replay
    sandbox: {backend: podman, network: allowlist, allowed_hosts: [a.example], memory_mb: 512, cpus: 2}
    retries: 5
    gates: [failure_count == 0]
    tags: [2024, x]
    """
    spec = load(write(tmp_path, text))
    first, second = spec.tasks
    assert (first.source, first.path, first.include, first.exclude) == (
        "dataset",
        "tasks",
        ("easy-*",),
        ("broken", "slow"),
    )
    assert (first.agents, first.models, first.rollouts) == (("oracle", "nop"), (None, "m1"), 2)
    assert first.agent_options == {"steps": 5}
    assert first.apply_overrides is False
    assert first.overrides == {"remove_repo_paths": ["x"]}
    assert first.environment_variables == {"VERSION": "1.10", "MODE": "0755", "DEBUG": "true", "TEXT": "a b"}
    assert first.sweep == {"LEVEL": ("1", "2.50")}
    assert (second.source, second.path, second.agents, second.rollouts) == ("zip", "b.zip", ("replay",), 2)
    assert (spec.sandbox.backend, spec.sandbox.memory_bytes, spec.sandbox.cpus) == ("podman", 512 << 20, 2.0)
    assert (spec.retries.infrastructure, spec.retries.provider) == (5, 5)
    assert spec.gates == ("failure_count == 0",)
    assert spec.tags == ("2024", "x")
    assert spec.kind == "task"


def test_numbers_and_truths_become_text_where_text_is_due_in_json_too() -> None:
    entry = {"path": "a", "environment_variables": {"A": 1, "B": True, "C": 1.5, "D": "d"}}
    spec = from_mapping({"tasks": [entry]})
    assert spec.tasks[0].environment_variables == {"A": "1", "B": "true", "C": "1.5", "D": "d"}


def test_the_places_of_parameters_are_kept_for_later_checks(tmp_path: Path) -> None:
    path = write(tmp_path, "experiment: a\nparams:\n  n: 1\nsweep:\n  m: [1]\n")
    spec = load(path)
    assert spec.place("experiments", 0, "params", "n") == f"{path}:3:3"
    assert spec.place("experiments", 0, "sweep", "m") == f"{path}:5:3"
    assert spec.place("experiments", 0, "params", "other") == f"{path}:2:1"
    assert spec.place("experiments", 0) == f"{path}:1:1"
    assert spec.place("elsewhere") == ""
    assert "places" not in spec.to_mapping()


def test_a_base_folder_is_read_against_the_file(tmp_path: Path) -> None:
    assert load(write(tmp_path, "experiment: a\nbase_dir: sub")).base_dir == str(tmp_path / "sub")
    assert load(write(tmp_path, "experiment: a\nbase_dir: /x")).base_dir == "/x"


def test_a_mapping_gives_errors_with_the_path_of_the_key() -> None:
    with pytest.raises(SpecError, match=r"^body: tasks.0.rollout: 'rollout' is not a key here"):
        from_mapping({"tasks": [{"path": "a", "rollout": 1}]}, file="body")
    with pytest.raises(SpecError, match=r"^tasks.0.rollouts: expected a whole number"):
        from_mapping({"tasks": [{"path": "a", "rollouts": "x"}]})


def as_spec(path: Path) -> dict[str, Any]:
    data = load(path).to_mapping()
    del data["base_dir"]
    return data


def test_the_same_older_spec_in_three_formats_is_the_same_spec() -> None:
    first, second, third = (as_spec(FIXTURES / f"older_flat.{kind}") for kind in ("yaml", "json", "toml"))
    assert json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)
    assert json.dumps(first, sort_keys=True) == json.dumps(third, sort_keys=True)
    assert first["parallel"] == 2
    assert first["seed"] == 42
    assert first["experiments"][0]["instrumentation"] == [
        {"name": "timing"},
        {"name": "psutil", "interval_ms": 200},
    ]


def test_a_file_that_may_not_be_read_says_so(tmp_path: Path) -> None:
    """Root may read any file, so the attempt is made by a process that has given that up."""
    path = write(tmp_path, "{}", "spec.json")
    path.chmod(0)
    script = (
        "import os, sys, proctor.spec.positions\n"
        "from pathlib import Path; from proctor.spec.load import load\n"
        "os.getuid() or os.setuid(65534)\n"
        "try: load(Path(sys.argv[1]))\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    found = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True)
    assert found.stdout == f"SpecError {path}: cannot be read: Permission denied\n"


@pytest.mark.parametrize(
    ("sandbox", "said"),
    [
        ("{network_allow: [10.0.0.0/8, 10.1.2.3/8]}", "did you mean 10.0.0.0/8?"),
        (
            "{network_allow: 'http://mirror'}",
            "'http://mirror' is not an address, a range (10.0.0.0/8) or a name",
        ),
        ("{network_allow: [127.0.0.1]}", "has loopback addresses"),
        ("{network: allowlist, allowed_hosts: ['a.example:443']}", "'a.example:443' is not a host name"),
        ("{network: none, allowed_hosts: [a.example]}", "'allowed_hosts' has no effect with 'network: none'"),
    ],
)
def test_a_network_that_nobody_can_mean_is_refused_with_its_line(tmp_path, sandbox, said):
    found = problem(tmp_path, f"tasks: [a]\nsandbox: {sandbox}\n")
    assert found.startswith("spec.yaml:2:")
    assert said in found
