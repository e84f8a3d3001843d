"""Every row of the table of the format is tried: what is honoured changes the task, the rest is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from proctor.errors import TaskError
from proctor.model.task import Task, VerifierSpec
from proctor.tasks.read import read_runnable, read_task, refusals
from proctor.tasks.toml_file import FILES, TABLES

MEASURED = '[verifier.performance]\ncommand = "./run"\nreference = "best"\n'
STEP = '[[steps]]\nname = "one"\n'
FOLDERS = {
    "instruction.md": "Do it.\n",
    "environment/Dockerfile": "FROM debian:bookworm-slim\n",
    "tests/test.sh": "true\n",
    "steps/one/instruction.md": "First.\n",
    "steps/two/instruction.md": "Second.\n",
    "best/run": "echo 1\n",
    "better/run": "echo 1\n",
}
BEFORE = {
    "[verifier]": "",
    "[[verifier.collect]]": '[[verifier.collect]]\ncommand = "true"\n',
    "[verifier.performance]": MEASURED,
    "[environment.healthcheck]": '[environment.healthcheck]\ncommand = "true"\n',
    "[[environment.mcp_servers]]": '[[environment.mcp_servers]]\nname = "a"\nurl = "http://a"\n',
    "[environment.tpu]": '[environment.tpu]\ntype = "v4"\ntopology = "2x2"\n',
    "[[steps]]": STEP,
    "[[artifacts]]": 'artifacts = [{ source = "/a" }]\n',
}
"""What a table is without the key that is tried, where that is not nothing."""
HONOURED = {
    ("task.toml", "schema_version"): 'schema_version = "1.3"\n',
    ("task.toml", "version"): 'version = "1.2"\n',
    ("task.toml", "task"): '[task]\nname = "a/b"\n',
    ("task.toml", "agent"): "[agent]\ntimeout_sec = 5\n",
    ("task.toml", "verifier"): "[verifier]\ntimeout_sec = 5\n",
    ("task.toml", "environment"): "[environment]\ncpus = 3\n",
    ("task.toml", "solution"): '[solution]\nenv = { A = "1" }\n',
    ("task.toml", "steps"): STEP,
    ("task.toml", "artifacts"): 'artifacts = ["/a"]\n',
    ("task.toml", "multi_step_reward_strategy"): 'multi_step_reward_strategy = "final"\n',
    ("[task]", "name"): '[task]\nname = "a/b"\n',
    ("[agent]", "timeout_sec"): "[agent]\ntimeout_sec = 5\n",
    ("[agent]", "user"): "[agent]\nuser = 1000\n",
    ("[agent]", "network_mode"): '[agent]\nnetwork_mode = "no-network"\n',
    ("[agent]", "allowed_hosts"): '[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.org"]\n',
    ("[verifier]", "timeout_sec"): "[verifier]\ntimeout_sec = 5\n",
    ("[verifier]", "env"): '[verifier]\nenv = { A = "1" }\n',
    ("[verifier]", "user"): '[verifier]\nuser = "judge"\n',
    ("[verifier]", "environment_mode"): '[verifier]\nenvironment_mode = "separate"\n',
    ("[verifier]", "environment"): "[verifier.environment]\ncpus = 2\n",
    ("[verifier]", "collect"): '[[verifier.collect]]\ncommand = "true"\n',
    ("[verifier]", "network_mode"): '[verifier]\nnetwork_mode = "no-network"\n',
    ("[verifier]", "allowed_hosts"): '[verifier]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.org"]\n',
    ("[[verifier.collect]]", "command"): '[[verifier.collect]]\ncommand = "false"\n',
    ("[[verifier.collect]]", "service"): '[[verifier.collect]]\ncommand = "true"\nservice = "db"\n',
    ("[[verifier.collect]]", "timeout_sec"): '[[verifier.collect]]\ncommand = "true"\ntimeout_sec = 5\n',
    ("[[verifier.collect]]", "user"): '[[verifier.collect]]\ncommand = "true"\nuser = "judge"\n',
    ("[verifier]", "performance"): MEASURED,
    ("[verifier.performance]", "command"): MEASURED.replace("run", "walk"),
    ("[verifier.performance]", "reference"): MEASURED.replace("best", "better"),
    **{
        ("[verifier.performance]", key): f"{MEASURED}{key} = {value}\n"
        for key, value in {
            "metric": '"memory"',
            "direction": '"higher"\nmetric = "custom"',
            "rounds": 20,
            "target": 3,
            "precision": 0.2,
            "inputs": '"make"',
            "check": '"diff"',
            "timeout_sec": 5,
        }.items()
    },
    ("[environment]", "build_timeout_sec"): "[environment]\nbuild_timeout_sec = 5\n",
    ("[environment]", "docker_image"): '[environment]\ndocker_image = "debian:12"\n',
    ("[environment]", "cpus"): "[environment]\ncpus = 2\n",
    ("[environment]", "memory_mb"): "[environment]\nmemory_mb = 64\n",
    ("[environment]", "storage_mb"): "[environment]\nstorage_mb = 64\n",
    ("[environment]", "mcp_servers"): '[[environment.mcp_servers]]\nname = "a"\nurl = "http://a"\n',
    ("[environment]", "env"): '[environment]\nenv = { A = "1" }\n',
    ("[environment]", "skills_dir"): '[environment]\nskills_dir = "/skills"\n',
    ("[environment]", "healthcheck"): '[environment.healthcheck]\ncommand = "true"\n',
    ("[environment]", "workdir"): '[environment]\nworkdir = "/w"\n',
    ("[environment]", "network_mode"): '[environment]\nnetwork_mode = "no-network"\n',
    ("[environment]", "allowed_hosts"):
        '[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.org"]\n',
    ("[environment]", "allow_internet"): "[environment]\nallow_internet = false\n",
    ("[environment]", "memory"): '[environment]\nmemory = "1G"\n',
    ("[environment]", "storage"): '[environment]\nstorage = "1G"\n',
    ("[environment.healthcheck]", "command"): '[environment.healthcheck]\ncommand = "false"\n',
    **{
        ("[environment.healthcheck]", key): f'[environment.healthcheck]\ncommand = "true"\n{key} = 7\n'
        for key in ("interval_sec", "timeout_sec", "start_period_sec", "start_interval_sec", "retries")
    },
    ("[[environment.mcp_servers]]", "name"): '[[environment.mcp_servers]]\nname = "b"\nurl = "http://a"\n',
    ("[[environment.mcp_servers]]", "transport"):
        '[[environment.mcp_servers]]\nname = "a"\nurl = "http://a"\ntransport = "http"\n',
    ("[[environment.mcp_servers]]", "url"): '[[environment.mcp_servers]]\nname = "a"\nurl = "http://b"\n',
    ("[[environment.mcp_servers]]", "command"):
        '[[environment.mcp_servers]]\nname = "a"\ntransport = "stdio"\ncommand = "serve"\n',
    ("[[environment.mcp_servers]]", "args"):
        '[[environment.mcp_servers]]\nname = "a"\nurl = "http://a"\nargs = ["-x"]\n',
    ("[solution]", "env"): '[solution]\nenv = { A = "1" }\n',
    ("[[steps]]", "name"): '[[steps]]\nname = "two"\n',
    ("[[steps]]", "agent"): f"{STEP}agent = {{ timeout_sec = 5 }}\n",
    ("[[steps]]", "verifier"): f"{STEP}verifier = {{ timeout_sec = 5 }}\n",
    ("[[steps]]", "min_reward"): f"{STEP}min_reward = {{ speed = 0.5 }}\n",
    ("[[steps]]", "healthcheck"): f'{STEP}healthcheck = {{ command = "true" }}\n',
    ("[[steps]]", "artifacts"): f'{STEP}artifacts = ["/a"]\n',
    ("[[artifacts]]", "source"): 'artifacts = [{ source = "/b" }]\n',
    ("[[artifacts]]", "destination"): 'artifacts = [{ source = "/a", destination = "b" }]\n',
    ("[[artifacts]]", "exclude"): 'artifacts = [{ source = "/a", exclude = ["*.o"] }]\n',
    ("[[artifacts]]", "service"): 'artifacts = [{ source = "/a", service = "db" }]\n',
}  # fmt: skip
REFUSED = {
    ("[environment]", "os"): ('[environment]\nos = "Windows"\n', "Windows containers"),
    ("[environment]", "gpus"): ("[environment]\ngpus = 1\n", "1 GPU, and Proctor's sandboxes have none"),
    ("[environment]", "tpu"): ('[environment.tpu]\ntype = "v4"\ntopology = "2x2"\n', "a TPU (v4 2x2)"),
    ("[environment.tpu]", "type"): ('[environment.tpu]\ntype = "v4"\ntopology = "2x2"\n', "a TPU (v4"),
    ("[environment.tpu]", "topology"): ('[environment.tpu]\ntype = "v4"\ntopology = "2x2"\n', "2x2)"),
}
IRRELEVANT = {
    ("task.toml", "metadata"): "[metadata]\nanything = { goes = [1] }\n",
    ("task.toml", "source"): 'source = "https://example.org"\n',
    ("[task]", "version"): '[task]\nname = "t"\nversion = "3"\n',
    ("[task]", "description"): '[task]\nname = "t"\ndescription = "d"\n',
    ("[task]", "authors"): '[task]\nname = "t"\nauthors = [{ name = "A" }]\n',
    ("[task]", "keywords"): '[task]\nname = "t"\nkeywords = ["k"]\n',
    ("[environment]", "gpu_types"): '[environment]\ngpu_types = ["H100"]\n',
}


def make(folder: Path, toml: str, **changed: str | None) -> Path:
    for name, text in {**FOLDERS, **changed}.items():
        if text is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    (folder / "task.toml").write_text(toml)
    return folder


def meant(folder: Path, toml: str, **changed: str | None) -> Task:
    """The task without what always differs; and without what only describes it."""
    task = read_task(make(folder / "t", toml, **changed))
    assert task.warnings == (), task.warnings
    nothing = {"digest": "", "version": "", "description": "", "keywords": (), "metadata": {}}
    kept = replace(task, **nothing)
    return replace(kept, environment=replace(kept.environment, gpu_types=()))


def rows(status: str) -> set[tuple[str, str]]:
    return {(table, key) for table, rules in TABLES.items() for key in rules if rules[key].status == status}


def test_every_row_of_the_table_is_tried_here():
    assert set(HONOURED) == rows("honoured")
    assert set(REFUSED) == rows("refused")
    assert set(IRRELEVANT) == rows("irrelevant")


@pytest.mark.parametrize(("table", "key"), sorted(HONOURED))
def test_a_key_that_is_honoured_makes_another_task(tmp_path, table, key):
    if (
        table == "[verifier]"
        and key in {"network_mode", "allowed_hosts"}
        and not hasattr(VerifierSpec, "network")
    ):
        pytest.skip("the tests share the agent's network")
    assert meant(tmp_path, HONOURED[table, key]) != meant(tmp_path, BEFORE.get(table, ""))


@pytest.mark.parametrize(("table", "key"), sorted(REFUSED))
def test_a_key_that_is_refused_is_read_and_then_refused_with_its_reason(tmp_path, table, key):
    toml, reason = REFUSED[table, key]
    folder = make(tmp_path / "t", toml)
    assert any(reason in each for each in refusals(read_task(folder)))
    with pytest.raises(TaskError, match=r"task\.toml: "):
        read_runnable(folder)


@pytest.mark.parametrize(("table", "key"), sorted(IRRELEVANT))
def test_a_key_that_is_irrelevant_changes_nothing(tmp_path, table, key):
    assert meant(tmp_path, IRRELEVANT[table, key]) == meant(tmp_path, "")


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("artefacts = []\n", ":1: 'artefacts' is not a key of task.toml; did you mean 'artifacts'?"),
        ("[task]\nnane = 'x'\n", ":2: 'nane' is not a key of [task]; did you mean 'name'?"),
        ("[agent]\ntimeout = 1\n", ":2: 'timeout' is not a key of [agent]; did you mean 'timeout_sec'?"),
        ("[agent]\nmemory_mb = 1\n", ":2: 'memory_mb' is not a key of [agent]; it belongs in [environment]"),
        ("[verifier]\nenvs = {}\n", ":2: 'envs' is not a key of [verifier]; did you mean 'env'?"),
        ("[environment]\ncpu = 1\n", ":2: 'cpu' is not a key of [environment]; did you mean 'cpus'?"),
        ("[solution]\nenvironment = {}\n", "'environment' is not a key of [solution]"),
        ("[[verifier.collect]]\ncommand = 'x'\nservices = 'y'\n", "did you mean 'service'?"),
        (
            f"{MEASURED}round = 7\n",
            ":4: 'round' is not a key of [verifier.performance]; did you mean 'rounds'?",
        ),
        ("[environment.healthcheck]\ncommand = 'x'\nretry = 1\n", ":3: 'retry' is not a key of healthcheck"),
        ("[[environment.mcp_servers]]\nname = 'x'\nurl = 'y'\narg = 1\n", "did you mean 'args'?"),
        (f"{STEP}min_rewards = 1\n", ":3: 'min_rewards' is not a key of [[steps]] 1"),
        (f"{STEP}[steps.agent]\ntimeout = 1\n", ":4: 'timeout' is not a key of [steps 1.agent]"),
        (f"{STEP}[steps.verifier]\nenvs = 1\n", ":4: 'envs' is not a key of [steps 1.verifier]"),
        ("artifacts = [{ source = '/a', dest = 'b' }]\n", "'dest' is not a key of [[artifacts]]"),
        ("reward = 1\n", "'reward' is not a key of task.toml"),
    ],
)
def test_a_key_that_is_in_no_table_is_a_warning_with_its_line_and_the_nearest_name(tmp_path, toml, said):
    (warning,) = read_task(make(tmp_path / "t", toml)).warnings
    assert said in warning


SEPARATE = '[verifier]\nenvironment_mode = "separate"\n'
ADDED_FILES = {
    "instruction.md": ("", {"instruction.md": "Something else.\n"}),
    "trajectory.json": ("", {"trajectory.json": "{}"}),
    "environment/docker-compose.yaml": ("", {"environment/docker-compose.yaml": "services: {}\n"}),
    "tests/Dockerfile": (SEPARATE, {"tests/Dockerfile": "FROM a:1\n"}),
    "tests/docker-compose.yaml": (SEPARATE, {"tests/docker-compose.yaml": "services: {}\n"}),
    "solution/solve.sh": ("", {"solution/solve.sh": "true\n"}),
    "steps/<name>/instruction.md": (STEP, {"steps/one/instruction.md": "Another.\n"}),
    "steps/<name>/tests/": (STEP, {"steps/one/tests/more.txt": ""}),
    "steps/<name>/solution/solve.sh": (STEP, {"steps/one/solution/solve.sh": ""}),
    "steps/<name>/workdir/": (STEP, {"steps/one/workdir/a": ""}),
    "steps/<name>/trajectory.json": (STEP, {"steps/one/trajectory.json": "{}"}),
}
MISSED_FILES = {
    "task.toml": "no task.toml",
    "tests/test.sh": "tests/test.sh: missing",
}
TRIED_ELSEWHERE = {
    "environment/Dockerfile": "below",
    "environment/…": "below",
    "tests/test.bat": "below",
    "steps/<name>/workdir/setup.sh": "tests/trial/task/test_steps.py",
    ".harborignore": "tests/tasks/test_digest.py",
    "overrides.json": "tests/tasks/test_overrides.py",
    "tb_meta.json": "tests/tasks/test_overrides.py",
}


def test_every_file_of_the_table_is_tried_here_or_where_it_is_used():
    used = {name for name, rule in FILES.items() if rule.status != "irrelevant"}
    assert {*ADDED_FILES, *MISSED_FILES, *TRIED_ELSEWHERE} == used


@pytest.mark.parametrize("name", ADDED_FILES)
def test_a_file_that_is_honoured_makes_another_task(tmp_path, name):
    toml, added = ADDED_FILES[name]
    before = meant(tmp_path, toml)
    assert meant(tmp_path, toml, **added) != before


@pytest.mark.parametrize("name", MISSED_FILES)
def test_a_file_that_is_needed_is_missed(tmp_path, name):
    folder = make(tmp_path / "t", "")
    (folder / name).unlink()
    with pytest.raises(TaskError, match=MISSED_FILES[name]):
        read_task(folder)


def test_loose_files_are_laid_out_only_for_a_ready_image_without_a_dockerfile(tmp_path):
    ready = '[environment]\ndocker_image = "a:1"\n'
    assert read_task(make(tmp_path / "a", ready)).environment.loose_files is None
    files = {"environment/Dockerfile": None, "environment/data.txt": "1"}
    assert (
        read_task(make(tmp_path / "b", ready, **files)).environment.loose_files == tmp_path / "b/environment"
    )
    without = read_task(make(tmp_path / "c", "", **files))
    assert without.environment.loose_files is None
    assert "no Dockerfile and no docker_image" in without.warnings[0]


def test_files_for_windows_do_not_make_a_task(tmp_path):
    folder = make(tmp_path / "t", "", **{"tests/test.sh": None, "tests/test.bat": "echo 1\n"})
    with pytest.raises(TaskError, match=r"tests/test.sh: missing"):
        read_task(folder)


@pytest.mark.parametrize("name", [name for name, rule in FILES.items() if rule.status == "irrelevant"])
def test_a_file_that_is_irrelevant_changes_nothing(tmp_path, name):
    assert meant(tmp_path, "", **{name: "anything\n"}) == meant(tmp_path, "")
