from __future__ import annotations

from pathlib import Path

import pytest

from proctor.errors import TaskError
from proctor.model.spec import TaskEntry
from proctor.tasks.dataset import find_tasks
from proctor.tasks.read import read_task


def make_task(folder: Path, toml: str = 'version = "1.0"\n', **files: str) -> Path:
    contents = {
        "task.toml": toml,
        "instruction.md": "Do it.\n",
        "tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n",
        "environment/Dockerfile": "FROM debian:bookworm-slim\n",
        **{name.replace("__", "/"): text for name, text in files.items()},
    }
    for name, text in contents.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return folder


def error_of(folder: Path) -> str:
    with pytest.raises(TaskError) as caught:
        read_task(folder)
    return str(caught.value)


def test_a_full_task_of_the_newest_schema_is_read(tmp_path):
    task = read_task(
        make_task(
            tmp_path / "t",
            """
schema_version = "1.4"
artifacts = ["out.txt", { source = "/var/log/x" }]
[task]
name = "org/hello"
version = "2"
keywords = ["a"]
[metadata]
difficulty = "easy"
[agent]
timeout_sec = 12.5
user = "worker"
network_mode = "public"
[verifier]
timeout_sec = 60
env = { FAST = true, N = 3 }
environment_mode = "separate"
[environment]
docker_image = "debian:bookworm"
cpus = 0.5
memory_mb = 512
storage_mb = 100
env = { TOKEN = "${TOKEN:-none}" }
workdir = "/work"
network_mode = "allowlist"
allowed_hosts = ["example.org"]
[environment.healthcheck]
command = "true"
retries = 2
[solution]
env = { A = "1" }
""",
            solution__solve_sh="",
        )
    )
    assert (task.name, task.version, task.schema_version) == ("org/hello", "2", "1.4")
    assert (task.agent.timeout_s, task.agent.user, task.agent.network) == (12.5, "worker", "public")
    assert task.verifier.env == {"FAST": "true", "N": "3"}
    assert task.verifier.separate
    assert task.environment.memory_bytes == 512 << 20
    assert task.environment.storage_bytes == 100 << 20
    assert task.environment.network == "allowlist"
    assert task.environment.healthcheck is not None
    assert task.environment.healthcheck.retries == 2
    assert [each.source for each in task.artifacts] == ["out.txt", "/var/log/x"]
    assert task.solution_env == {"A": "1"}
    assert task.warnings == ()


def test_older_keys_mean_what_they_meant(tmp_path):
    task = read_task(
        make_task(
            tmp_path / "t",
            'version = "1.0"\n[environment]\nmemory = "2G"\nstorage = "10G"\nallow_internet = false\n',
        )
    )
    assert task.name == "t"
    assert task.environment.memory_bytes == 2 << 30
    assert task.environment.storage_bytes == 10 << 30
    assert task.environment.network == "none"


def test_canary_comments_before_the_instruction_are_dropped(tmp_path):
    text = "<!-- canary GUID 123 -->\n# benchmark canary 456\n\nDo it.\n"
    assert (
        read_task(make_task(tmp_path / "t", instruction__md="x", **{"instruction.md": text})).instruction
        == "Do it.\n"
    )


def test_an_unknown_key_warns_with_its_line_and_the_right_word(tmp_path):
    task = read_task(make_task(tmp_path / "t", 'version = "1.0"\n[agent]\ntimeout_secs = 5\n'))
    assert len(task.warnings) == 1
    assert task.warnings[0].endswith(
        "task.toml:3: 'timeout_secs' is not a key of [agent]; did you mean 'timeout_sec'?"
    )


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("[agent]\ntimeout_sec = 'long'\n", "task.toml:2: 'timeout_sec' must be a number"),
        ("[agent]\ntimeout_sec = 0\n", "must be more than zero"),
        ("[agent]\ntimeout_sec = -1\n", "must be a number, zero or more"),
        ("agent = 3\n", "'agent' must be a table"),
        ("[environment]\nmemory = 'lots'\n", "task.toml:2: 'lots' is not a size"),
        ("[environment]\nnetwork_mode = 'some'\n", "public, no-network or allowlist"),
        ("[environment]\nenv = { A = [1] }\n", "'A' must be text"),
        ("[environment]\nallowed_hosts = 'x'\n", "a list of host names"),
        ("[environment.healthcheck]\nretries = 1\n", "a command line"),
        ("[verifier]\nenvironment_mode = 'own'\n", "shared or separate"),
        ("[verifier]\ncollect = 3\n", "must be a list"),
        ("multi_step_reward_strategy = 'max'\n", "mean or final"),
        ("steps = 3\n", "a list of tables"),
        ("steps = [3]\n", "a table"),
        ("[[steps]]\nname = '../x'\n", "a plain word"),
        ("[[steps]]\nname = 'one'\n", "missing"),
        ("a = \n", "not valid TOML"),
    ],
)
def test_what_the_author_must_mend_is_named(tmp_path, toml, message):
    assert message in error_of(make_task(tmp_path / "t", toml))


def test_missing_and_unreadable_files_are_named(tmp_path):
    assert "no such folder" in error_of(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    assert "proctor new task" in error_of(tmp_path / "empty")
    folder = make_task(tmp_path / "t")
    (folder / "instruction.md").write_bytes(b"\xff\xfe")
    assert "not UTF-8" in error_of(folder)
    (folder / "instruction.md").unlink()
    assert "instruction.md: missing" in error_of(folder)
    (folder / "tests/test.sh").unlink()
    assert "test.sh: missing" in error_of(folder)
    (folder / "task.toml").write_bytes(b"\xff")
    assert "not UTF-8" in error_of(folder)
    (folder / "task.toml").write_bytes(b"#" * (2 << 20))
    assert "larger than 1 MiB" in error_of(folder)


def test_the_steps_of_a_task_inherit_and_override(tmp_path):
    toml = """
schema_version = "1.3"
multi_step_reward_strategy = "final"
[agent]
timeout_sec = 30
[[steps]]
name = "one"
min_reward = 0.5
[[steps]]
name = "two"
agent = { timeout_sec = 5 }
"""
    task = read_task(
        make_task(
            tmp_path / "t",
            toml,
            **{
                "steps/one/instruction.md": "First.",
                "steps/one/tests/test.sh": "",
                "steps/one/solution/solve.sh": "",
                "steps/two/instruction.md": "Second.",
            },
        )
    )
    one, two = task.steps
    assert (one.instruction, one.agent.timeout_s, one.min_reward) == ("First.", 30, {"reward": 0.5})
    assert (two.instruction, two.agent.timeout_s, two.min_reward) == ("Second.", 5, {})
    assert one.solution is not None
    assert one.tests == (task.path / "tests", task.path / "steps/one/tests")
    assert two.tests == (task.path / "tests",)
    assert task.reward_strategy == "final"


def test_a_dataset_is_a_folder_of_tasks_and_one_broken_task_spoils_no_other(tmp_path):
    for name in ("a", "b", "c"):
        make_task(tmp_path / "set" / name)
    (tmp_path / "set/b/tests/test.sh").unlink()
    found = find_tasks(TaskEntry(path="set"), tmp_path, tmp_path / "cache")
    assert [task.name for task in found.tasks] == ["a", "c"]
    assert [task.name for task in found.broken] == ["b"]
    assert "test.sh: missing" in found.broken[0].error
    chosen = find_tasks(
        TaskEntry(path="set", include=("a", "c"), exclude=("c*",)), tmp_path, tmp_path / "cache"
    )
    assert [task.name for task in chosen.tasks] == ["a"]


def test_a_zip_is_unpacked_once_and_an_entry_that_means_nothing_is_an_error(tmp_path):
    from proctor.tasks.archive import pack

    pack(make_task(tmp_path / "t"), tmp_path / "t.zip")
    entry = TaskEntry(path="t.zip", source="zip")
    first = find_tasks(entry, tmp_path, tmp_path / "cache").tasks[0]
    again = find_tasks(entry, tmp_path, tmp_path / "cache").tasks[0]
    assert first.path == again.path
    for nothing in ("none", "set"):
        (tmp_path / "set").mkdir(exist_ok=True)
        with pytest.raises(TaskError):
            find_tasks(TaskEntry(path=nothing), tmp_path, tmp_path / "cache")
