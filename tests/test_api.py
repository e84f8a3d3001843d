"""`proctor.run` and `proctor.compare`, called as a script, a notebook and an asyncio program would."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import proctor
from proctor.errors import Interrupted, NotFoundError, SpecError, UsageError

ROOT = Path(__file__).parent.parent
SPEC = {
    "name": "api",
    "experiment": "sorting",
    "sources": str(ROOT / "experiments.d"),
    "params": {"size": 100},
    "iterations": {"measured": 3},
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("PROCTOR_") and name != "PROCTOR_TEST_REQUIRE":
            monkeypatch.delenv(name)
    return tmp_path


def test_a_mapping_is_run_and_everything_about_it_can_be_asked(tmp_path):
    events = []
    run = proctor.run(SPEC, output_dir="elsewhere", parallel=1, on_event=events.append)
    assert (run.name, run.status, run.outcomes, run.exit_code) == ("api", "done", {"passed": 1}, 0)
    assert run.folder.is_relative_to(tmp_path / "elsewhere")
    assert run.report.is_file()
    assert run.summary["outcomes"] == {"passed": 1}
    assert len(run.rows("iterations")) == 3
    assert [(each.kind, each.done, each.total, each.outcome) for each in events] == [
        ("started", 0, 1, None),
        ("ended", 1, 1, "passed"),
    ]
    assert run.id in repr(run)
    assert "1 passed" in repr(run)


def test_a_file_and_a_spec_are_run_too_with_overrides(tmp_path):
    Path("a.json").write_text(json.dumps(SPEC))
    run = proctor.run("a.json", overrides=["iterations.measured=2", "params.size=50"])
    assert [row["params.size"] for row in run.rows()] == [50]
    from proctor.spec.load import load

    again = proctor.run(load(Path("a.json")), overrides=["iterations.measured=2"])
    assert len(again.rows("iterations")) == 2


@pytest.mark.needs("pandas")
def test_a_frame_has_a_row_per_trial():
    assert list(proctor.run(SPEC).frame()["outcome"]) == ["passed"]


def test_it_works_inside_a_running_loop():
    async def program():
        blocking = proctor.run(SPEC)
        beside = await asyncio.to_thread(proctor.run, SPEC)
        return blocking, beside

    assert [run.status for run in asyncio.run(program())] == ["done", "done"]


def test_runs_are_compared_by_object_id_and_folder():
    run = proctor.run(SPEC)
    found = proctor.compare(run, run.id)
    assert found.ratio == 1
    assert found.interval is not None
    assert found.interval[0] < 1 < found.interval[1]
    assert found.difference is None
    assert str(found) == found.to_dict()["sentence"]
    assert found.to_dict()["verdict"] == found.verdict
    assert proctor.compare(run.folder, run, metrics="cpu_s").metrics[0].metric == "cpu_s"


def test_settings_can_be_given(tmp_path):
    settings = proctor.Settings(home=tmp_path / "home", output_dir=tmp_path / "out")
    run = proctor.run(SPEC, settings=settings)
    assert run.folder.is_relative_to(tmp_path / "out")
    assert (tmp_path / "home/proctor.db").is_file()
    assert proctor.compare(run.id, run.id, settings=settings).ratio == 1


def test_gates_of_the_spec_are_judged():
    passes = proctor.run({**SPEC, "gates": ["failure_count == 0"]})
    assert (passes.gate.verdict, passes.exit_code) == ("pass", 0)
    breaks = proctor.run({**SPEC, "gates": ["episodes >= 2"]})
    assert (breaks.gate.verdict, breaks.exit_code) == ("regression", 1)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: proctor.run("missing.yaml"), SpecError, "does not exist"),
        (lambda: proctor.run({"experiment": "sortnig"}), NotFoundError, "sortnig"),
        (lambda: proctor.run({**SPEC, "nonsense": 1}), SpecError, "nonsense"),
        (lambda: proctor.run({**SPEC, "gates": ["no such rule at all"]}), UsageError, "no such rule"),
        (lambda: proctor.run(SPEC, parallel=0), UsageError, "1 or more"),
        (lambda: proctor.run(SPEC, overrides="params.size=3"), UsageError, "list of texts"),
        (lambda: proctor.compare("a", "b"), NotFoundError, "'a'"),
        (lambda: proctor.compare("a", "b", margin=-1), UsageError, "fraction"),
    ],
)
def test_a_mistake_is_a_sentence_and_starts_nothing(call, error, words, tmp_path):
    with pytest.raises(error, match=re.escape(words)) as caught:
        call()
    assert isinstance(caught.value, proctor.ProctorError)
    assert not (tmp_path / "results").exists()


def test_a_callback_that_raises_stops_the_run_and_is_heard():
    def refuse(event):
        raise ZeroDivisionError(event.kind)

    with pytest.raises(ZeroDivisionError, match="started"):
        proctor.run({**SPEC, "params": {}, "sweep": {"size": [10, 20, 30]}}, on_event=refuse)
    from proctor.store.open import open_store

    with open_store(proctor.Settings().store_url) as store:
        assert store.run("latest").status == "interrupted"


def _to_the_process() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def _to_another_thread() -> None:
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)


@pytest.fixture
def _hears_ctrl_c() -> Iterator[None]:
    """Tests that were started in the background would not hear it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    after = signal.signal(signal.SIGINT, before)
    assert after is signal.default_int_handler, "a run leaves the handler as it was"


@pytest.mark.usefixtures("_hears_ctrl_c")
@pytest.mark.parametrize("press", [_to_the_process, _to_another_thread])
def test_ctrl_c_saves_what_ended_and_raises(press):
    heard = []

    def interrupt(event):
        heard.append(event)
        if [each.kind for each in heard].count("ended") == 1 and event.kind == "ended":
            press()

    wanted = {**SPEC, "params": {}, "sweep": {"size": list(range(10, 400))}}
    with pytest.raises(Interrupted, match="proctor resume"):
        proctor.run(wanted, on_event=interrupt)
    assert 0 < heard[-1].done < 390


@pytest.mark.usefixtures("_hears_ctrl_c")
def test_ctrl_c_before_the_first_trial_stops_the_run(monkeypatch):
    start = threading.Thread.start

    def interrupted(thread):
        if thread.name.startswith("proctor-run-"):
            _to_the_process()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(Interrupted, match="proctor resume"):
        proctor.run(SPEC)


def test_every_python_block_of_the_page_runs(tmp_path):
    for name in ("specs", "experiments.d"):
        shutil.copytree(ROOT / name, tmp_path / name)
    page = (ROOT / "docs/how-to/use-from-python.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert "did you mean 'sorting'" in done.stdout or "sortnig" in done.stdout
