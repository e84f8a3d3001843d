"""What a run brings with it, and what is used of it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import time
from pathlib import Path

import pytest
from tests.resources import Resources

from proctor.agents.own_modules import load
from proctor.cli.main import main
from proctor.errors import TaskError, UsageError
from proctor.experiments.base import REGISTRY
from proctor.experiments.discover import is_built_in
from proctor.model.canonical import canonical_json
from proctor.model.run import Execution
from proctor.model.secret import LITERAL_PREFIX
from proctor.runs.executors import task_plans
from proctor.runs.inputs import RunInputs
from proctor.runs.running import ReadyRun, create, reopen
from proctor.settings import Settings
from proctor.spec.load import from_mapping
from proctor.store.open import open_store

EXPERIMENT = """
from proctor import Experiment, register_experiment

@register_experiment("{slug}")
class Own(Experiment):
    def execute_once(self, context):
        return {{}}
"""
AGENT = """
from proctor.agents.base import AgentResult
from agents_near import WORD

class Agent:
    name = "own"
    version = WORD

    async def run(self, task, sandbox, model, context):
        return AgentResult()
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        home=tmp_path / "home", output_dir=tmp_path / "results", rollouts_dir=tmp_path / "results"
    )


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def make_task(folder: Path, solution: str = "touch /app/done\n") -> None:
    write(
        folder,
        **{
            "task.toml": 'schema_version = "1.4"\n[environment]\nnetwork_mode = "no-network"\n',
            "instruction.md": "Do it.\n",
            "environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\n",
            "solution/solve.sh": solution,
            "tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n",
        },
    )


def made(settings: Settings, written: dict[str, object]) -> ReadyRun:
    spec = from_mapping({"name": "n", **written}, base_dir=str(Path.cwd()))
    return create(spec, written, Resources(settings))


def rollouts(**entry: object) -> dict[str, object]:
    return {"sandbox": {"host_root": True}, "tasks": [{"dataset": "set", "agent": "nop", **entry}]}


def elsewhere(settings: Settings, run: ReadyRun) -> ReadyRun:
    """The same run where the project is not."""
    for slug in [slug for slug, each in REGISTRY.items() if not is_built_in(each)]:
        del REGISTRY[slug]
    return reopen(run.info.id, Resources(settings))


def test_a_task_is_stored_once_per_digest_for_all_runs(project, settings):
    make_task(project / "set/one")
    make_task(project / "set/same")
    make_task(project / "set/other", "exit 1\n")
    first, second = made(settings, rollouts()), made(settings, rollouts())
    assert len(first.inputs.stored) == 2
    assert first.inputs.stored == second.inputs.stored
    make_task(project / "set/other", "exit 2\n")
    third = made(settings, rollouts())
    assert len(first.inputs.stored.keys() & third.inputs.stored.keys()) == 1


def test_a_blob_that_is_gone_is_stored_again(project, settings):
    make_task(project / "set/one")
    first = made(settings, rollouts())
    (stored,) = first.inputs.stored.values()
    first.inputs.blobs.remove(stored.digest)
    made(settings, rollouts())
    assert first.inputs.blobs.has(stored.digest)


def test_the_project_s_own_task_is_used_while_it_is_what_was_planned(project, settings):
    make_task(project / "set/one")
    run = made(settings, rollouts())
    (trial,) = run.plan.trials
    assert run.inputs.task(trial, settings.cache_dir).path == project / "set/one"
    make_task(project / "set/one", "exit 1\n")
    task = run.inputs.task(trial, settings.cache_dir)
    assert (task.name, task.digest) == ("one", trial.subject_digest)
    assert (task.path / "solution/solve.sh").read_text() == "touch /app/done\n"
    (task.path / "solution/solve.sh").write_text("changed in the cache")
    again = run.inputs.task(trial, settings.cache_dir)
    assert (again.path / "solution/solve.sh").read_text() == "touch /app/done\n"
    with pytest.raises(TaskError, match="has changed"):
        RunInputs(run.inputs.blobs, settings.cache_dir).task(trial, settings.cache_dir)


def test_a_task_leaves_out_what_its_digest_does_and_keeps_empty_folders(project, settings):
    make_task(project / "set/one")
    write(project / "set/one", **{".harborignore": "junk\n", "junk/x": "x", "__pycache__/x.pyc": "x"})
    (project / "set/one/environment/empty").mkdir()
    run = made(settings, rollouts())
    shutil.rmtree(project / "set")
    folder = run.inputs.task(run.plan.trials[0], settings.cache_dir).path
    assert not (folder / "junk").exists()
    assert not (folder / "__pycache__").exists()
    assert (folder / "environment/empty").is_dir()


def test_overrides_are_stored_without_their_secrets(project, settings, monkeypatch):
    make_task(project / "set/one")
    secret = "sk-live-0123456789abcdef0123"
    overrides = {
        "environment_variables": {"API_KEY": secret},
        "overlay_files": [{"path": "laid", "source": "files"}],
    }
    write(project, **{"o/overrides.json": json.dumps(overrides), "o/files/deep/x": "laid"})
    run = made(settings, rollouts(overrides="o/overrides.json"))
    for blob in run.inputs.blobs.list():
        with run.inputs.blobs.open(blob.digest) as file:
            assert secret.encode() not in file.read()
    shutil.rmtree(project / "o")
    with pytest.raises(UsageError, match=f"needs the secret {LITERAL_PREFIX}API_KEY, which is not set"):
        elsewhere(settings, run)
    monkeypatch.setenv(f"{LITERAL_PREFIX}API_KEY", secret)
    place = Path(str(elsewhere(settings, run).spec.tasks[0].overrides))
    assert place.is_relative_to(settings.cache_dir)
    assert (place.parent / "files/deep/x").read_text() == "laid"


@pytest.mark.parametrize("source", ["exps", "exps/own.py", "mine_a.exps", "mine_b.inner"])
def test_sources_are_found_again_whatever_they_were(project, settings, source, monkeypatch):
    slug = "own_" + source.replace("/", "_").replace(".", "_")
    text = EXPERIMENT.format(slug=slug)
    top = source.partition(".")[0]
    write(
        project,
        **{
            "exps/own.py": f"import exps_near\n{text}",
            "exps/exps_near.py": "",
            "mine_a/__init__.py": "",
            "mine_a/near.py": "x = 1\n",
            "mine_a/exps.py": f"from mine_a.near import x\n{text}",
            "mine_b/__init__.py": "",
            "mine_b/near.py": "x = 1\n",
            "mine_b/inner/__init__.py": "",
            "mine_b/inner/own.py": f"from mine_b.near import x\n{text}",
        },
    )
    run = made(settings, {"experiment": slug, "sources": [source]})
    assert elsewhere(settings, run).spec.sources == (source,), "it is still there"
    project.rename(project.with_name("gone"))
    monkeypatch.chdir(settings.home)
    for name in [each for each in sys.modules if each.partition(".")[0] == top]:
        del sys.modules[name]
    (packed,) = elsewhere(settings, run).spec.sources
    assert packed.startswith(f"packed:{settings.cache_dir}")
    assert REGISTRY[slug].file.startswith(str(settings.cache_dir.resolve()))


def test_a_source_of_the_settings_is_brought_too_and_takes_the_place_of_a_changed_one(
    project, settings, monkeypatch
):
    write(project, **{"mine/own.py": EXPERIMENT.format(slug="of_settings")})
    monkeypatch.setenv("PROCTOR_EXPERIMENTS", str(project / "mine"))
    settings = Settings(home=settings.home, output_dir=settings.output_dir, experiments=str(project / "mine"))
    run = made(settings, {"experiment": "of_settings"})
    write(project, **{"mine/own.py": EXPERIMENT.format(slug="of_settings") + "\nCHANGED = True\n"})
    (packed,) = elsewhere(settings, run).spec.sources
    assert packed.startswith("packed:")


def test_a_run_that_brought_nothing_needs_what_was_planned(project, settings, monkeypatch):
    write(project, **{"own.py": EXPERIMENT.format(slug="not_brought")})
    run = made(settings, {"experiment": "not_brought", "sources": ["own.py"]})
    with open_store(settings.store_url) as store, store._db.write() as tx:
        tx.change("DELETE FROM run_inputs")
    assert not elsewhere(settings, run).inputs.stored
    write(project, **{"own.py": EXPERIMENT.format(slug="not_brought") + "\nCHANGED = True\n"})
    with pytest.raises(UsageError, match="has changed since it was planned"):
        elsewhere(settings, run)


def test_built_in_experiments_bring_nothing_and_another_version_of_them_is_refused(
    project, settings, monkeypatch
):
    write(project, **{"own.py": EXPERIMENT.format(slug="beside")})
    written = {"experiment": "memory_db", "sources": ["own.py"], "params": {}}
    run = made(settings, written)
    assert [each.place for each in run.inputs.stored.values()] == ["project/own.py"]
    from proctor.experiments import source

    monkeypatch.setattr(source, "source_digest", lambda _: "another version")
    with pytest.raises(UsageError, match="memory_db has changed since it was planned"):
        elsewhere(settings, run)


def test_an_agent_of_one_s_own_and_the_files_of_an_agent_are_brought(project, settings, monkeypatch):
    make_task(project / "set/one")
    write(project, **{"own_agent.py": AGENT, "agents_near.py": 'WORD = "7"\n'})
    monkeypatch.syspath_prepend(str(project))
    run = made(settings, rollouts(agent="own_agent:Agent"))
    steps = [{"source": "agent", "tool_calls": []}]
    write(project, **{"tapes/one.json": json.dumps({"schema_version": "ATIF-v1.4", "steps": steps})})
    replayed = made(settings, rollouts(agent="replay", agent_options={"trajectory": "tapes"}))
    project.rename(project.with_name("gone"))
    monkeypatch.chdir(settings.home)
    for name in ("own_agent", "agents_near"):
        sys.modules.pop(name, None)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(project)])
    (entry,) = elsewhere(settings, run).spec.tasks
    assert entry.agents == ("own_agent:Agent",)
    assert Path(entry.agent_code["own_agent:Agent"].folder).is_relative_to(settings.cache_dir)
    tapes = elsewhere(settings, replayed).spec.tasks[0].agent_options["trajectory"]
    assert (Path(tapes) / "one.json").is_file()
    for name in ("own_agent", "agents_near"):
        sys.modules.pop(name, None)


def test_an_agent_of_another_version_is_refused(project, settings, monkeypatch):
    make_task(project / "set/one")
    run = made(settings, rollouts())
    monkeypatch.setattr("proctor.agents.oracle.Nop.version", "another")
    with pytest.raises(UsageError, match="agent 'nop' has version another here"):
        elsewhere(settings, run)


def test_a_measured_harness_brings_nothing(project, settings):
    make_task(project / "set/one")
    written = rollouts()
    spec = from_mapping({"name": "n", **written}, base_dir=str(project))
    assert not create(spec, written, Resources(settings), execution=Execution.PERF).inputs.stored


def test_what_only_a_removed_run_needed_is_removed_with_it(project, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PROCTOR_HOME", str(tmp_path / "home"))
    settings = Settings(
        home=tmp_path / "home", output_dir=tmp_path / "results", rollouts_dir=tmp_path / "results"
    )
    make_task(project / "set/one")
    first, second = made(settings, rollouts()), made(settings, rollouts())
    (stored,) = first.inputs.stored.values()
    assert main(["rm", first.info.id, "--yes"]) == 0
    assert first.inputs.blobs.has(stored.digest)
    before = time.time() - 3600  # a younger one might be about to be used by another run
    os.utime(first.inputs.blobs.path(stored.digest), (before, before))
    assert main(["rm", second.info.id, "--yes"]) == 0
    assert not first.inputs.blobs.has(stored.digest)


def test_a_plan_is_the_same_wherever_it_is_resumed(project, settings):
    make_task(project / "set/one")
    run = made(settings, rollouts(rollouts=2))
    project.rename(project.with_name("gone"))
    again = elsewhere(settings, run)
    assert canonical_json([each.key for each in again.plan.trials]) == canonical_json(
        [each.key for each in run.plan.trials]
    )


LAZY_AGENT = """
from proctor.agents.base import AgentResult

class Agent:
    name = "own"
    version = "1"

    async def run(self, task, sandbox, model, context):
        await context()
        import own_parts.words
        from own_parts import more
        return AgentResult(notes=(own_parts.words.WORD, more.WORD, type(self).__module__))
"""


def with_word(word: str) -> dict[str, str]:
    return {
        "lazy_agent.py": LAZY_AGENT,
        "own_parts/__init__.py": "",
        "own_parts/words.py": f"WORD = {word!r}\n",
        "own_parts/more.py": "from .words import WORD\n",
    }


@pytest.mark.anyio
async def test_two_runs_of_one_process_have_each_their_own_version_of_a_module(
    tmp_path, settings, monkeypatch
):
    """Also of what an agent imports only while it works, and when both say that they are the same version."""
    runs = []
    for word in ("first", "second"):
        folder = tmp_path / word
        write(folder, **with_word(word))
        make_task(folder / "set/one")
        monkeypatch.chdir(folder)
        with monkeypatch.context() as here:
            here.setattr(sys, "path", [str(folder), *sys.path])
            runs.append(made(settings, rollouts(agent="lazy_agent:Agent")))
        for name in [each for each in sys.modules if each.startswith(("lazy_agent", "own_parts"))]:
            del sys.modules[name]
    path, modules = list(sys.path), set(sys.modules)
    agents = []
    for run in runs:
        ready = reopen(run.info.id, Resources(settings))
        agents.append(task_plans(ready)(ready.plan.trials[0]).agent)
    both = asyncio.Barrier(2)
    results = await asyncio.gather(*(each.run(None, None, None, both.wait) for each in agents))
    assert [each.notes[:2] for each in results] == [("first", "first"), ("second", "second")]
    assert sys.path == path
    added = {each.partition(".")[0] for each in set(sys.modules) - modules}
    assert not {"lazy_agent", "own_parts"} & added
    assert {each.notes[2].partition(".")[0] for each in results} <= added


def test_an_edit_of_the_project_changes_nothing_of_a_run_that_was_planned_before(
    project, settings, monkeypatch
):
    make_task(project / "set/one")
    write(project, **with_word("first"), **{"own_parts/data.txt": "prompt"})
    monkeypatch.syspath_prepend(str(project))
    run = made(settings, rollouts(agent="lazy_agent:Agent"))
    code = reopen(run.info.id, Resources(settings)).spec.tasks[0].agent_code["lazy_agent:Agent"]
    words = load(code, "own_parts")
    assert Path(str(words.__file__)).with_name("data.txt").read_text() == "prompt"
    write(project, **with_word("later"))
    assert load(code, "own_parts.words").WORD == "first"
    changed = reopen(run.info.id, Resources(settings)).spec.tasks[0].agent_code["lazy_agent:Agent"]
    assert load(changed, "own_parts.words").WORD == "first"
