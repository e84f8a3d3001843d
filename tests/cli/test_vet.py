"""`proctor vet` on real sandboxes: each way in which a task can be wrong is found, and named."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.resources import Resources

from proctor.cli.main import main
from proctor.errors import Exit
from proctor.model.vetting import Check
from proctor.processes import all_processes, allowed_cpus
from proctor.runfolder.perf.schema import load_schema, problems
from proctor.runs.vet.planning import VetRequest, create_vetting
from proctor.settings import load_settings

TASKS = Path(__file__).parents[2] / "tasks"
MakeTask = Callable[..., Path]
QUICK = ["--rollouts", "1", "--repeats", "1"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def vetted(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = main(["vet", *words, "--host-root", "--json"])
    document = json.loads(capsys.readouterr().out)
    for each in document["certificates"]:
        assert problems(each, load_schema("task-certificate")) == []
    assert document["exit_code"] == code
    return code, {each["task"].split("/")[-1]: each for each in document["certificates"]}


@pytest.mark.needs("bubblewrap")
def test_sample_tasks_are_sound_and_nothing_goes_on_burning(capsys: pytest.CaptureFixture[str]):
    code, found = vetted(capsys, str(TASKS / "config-edit"), str(TASKS / "slow-build"), *QUICK)
    assert code == Exit.OK, [each["sentence"] for each in found.values()]
    assert set(found) == {"config-edit", "slow-build"}
    for each in found.values():
        assert each["verdict"] == "sound"
        assert each["sandbox"] == "bubblewrap"
        assert len(each["digest"]) == 64
        tried = [name for name, check in each["checks"].items() if check["tried"]]
        assert tried == ["oracle", "nop", "one_cpu", "clock", "time_zone", "loaded"]
        assert each["checks"]["network_off"]["why_not"] == "the task has no network anyway"
    children = [each for each in all_processes() if each.parent == os.getpid() and not each.gone]
    assert not [each for each in children if _is_burner(each.pid)]


def _is_burner(pid: int) -> bool:
    try:
        return b"prctl(1, 9)" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@pytest.mark.needs("bubblewrap")
def test_each_way_to_be_wrong_is_found(make_task: MakeTask, capsys: pytest.CaptureFixture[str]):
    soon = int(time.time()) + 30 * 86_400
    make_task("broken", solve="true")
    make_task("leaking", test="true")
    make_task("rotting", solve=f"[ $(date +%s) -lt {soon} ] && echo yes > /app/solved")
    make_task("zoned", test='grep -q yes /app/solved && [ "$(date +%z)" != +1345 ]')
    make_task("silent", test="grep -q yes /app/solved || exit 1")
    (make_task("unread") / "task.toml").write_text("[broken")
    expected = {
        "broken": "broken",
        "leaking": "leaking",
        "rotting": "rotting",
        "zoned": "fragile",
        "silent": "broken",
        "unread": "broken",
    }
    if len(allowed_cpus()) > 1:
        make_task("wide", solve='[ "$(nproc)" -gt 1 ] && echo yes > /app/solved')
        expected["wide"] = "fragile"
    if shutil.which("slirp4netns"):
        make_task("net", solve="grep -q tap0 /proc/net/dev && echo yes > /app/solved", network="public")
        expected["net"] = "network"
    code, found = vetted(
        capsys, "tasks", *QUICK, "--only", "oracle,nop,one-cpu,network_off,clock,time_zone", "--out", "out"
    )
    assert {name: each["verdict"] for name, each in found.items()} == expected
    assert code == Exit.WORSE
    assert "so an agent that fails would not be scored" in found["silent"]["sentence"]
    evidence = found["rotting"]["findings"][0]["evidence"][0]
    folder = next(Path(os.environ["PROCTOR_ROLLOUTS_DIR"]).rglob("manifest.json")).parent
    assert (folder / evidence["folder"]).is_dir()
    assert sorted(path.name for path in Path("out").iterdir()) == sorted(
        [
            "README.md",
            "index.html",
            "unread.json",
            *(f"t__{name}.json" for name in expected if name != "unread"),
        ]
    )


@pytest.mark.needs("bubblewrap")
def test_an_interrupted_vetting_is_finished_by_its_run_id(
    make_task: MakeTask, capsys: pytest.CaptureFixture[str]
):
    request = VetRequest(
        paths=(str(make_task("a")),),
        rollouts=2,
        repeats=1,
        host_root=True,
        checks=(Check.ORACLE, Check.NOP, Check.TIME_ZONE),
    )
    job = create_vetting(request, Resources(load_settings()))
    assert main(["vet", job.info.id]) == Exit.OK
    printed = capsys.readouterr().out
    assert "The task is sound." in printed
    assert "t/a is sound: the oracle passed 2 of 2" in printed
    assert (job.folder / "certificates" / "t__a.json").is_file()
    assert main(["vet", job.info.id]) == Exit.OK
    assert main(["show", job.info.id]) == Exit.OK
    assert "PROCTOR_PERTURBATION=time_zone" in capsys.readouterr().out


@pytest.mark.needs("bubblewrap")
def test_a_task_that_the_infrastructure_breaks_is_unsettled(
    make_task: MakeTask, capsys: pytest.CaptureFixture[str]
):
    folder = make_task("imageless")
    (folder / "environment" / "Dockerfile").write_text("FROM debian:bookworm-slim\nRUN exit 3\n")
    code, found = vetted(capsys, str(folder), *QUICK, "--only", "oracle")
    assert code == Exit.INFRASTRUCTURE
    assert found["imageless"]["verdict"] == "unsettled"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "no such task folder"),
        (["tasks", "--only", "orakel"], "did you mean 'oracle'"),
        (["tasks", "--only", ","], "names no check"),
        (["tasks", "--sandbox", "bubblewarp"], "did you mean"),
        (["tasks", "--rollouts", "0"], "rollouts"),
        ([], "nothing to vet"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(
    make_task: MakeTask, capsys: pytest.CaptureFixture[str], words: list[str], said: str
):
    make_task("a")
    assert main(["vet", *words]) == Exit.USAGE
    assert said in capsys.readouterr().err


def test_a_run_that_is_no_vetting_is_refused(
    store_rollouts: Callable[..., Any], capsys: pytest.CaptureFixture[str]
):
    store_rollouts({("a", "oracle"): [1.0]})
    assert main(["vet", "study"]) == Exit.USAGE
    assert "was not made by 'proctor vet'" in capsys.readouterr().err


def test_a_sandbox_that_cannot_be_disturbed_is_told_apart_from_one_that_was(
    make_task: MakeTask, capsys: pytest.CaptureFixture[str]
):
    code, found = vetted(capsys, str(make_task("a")), *QUICK, "--sandbox", "fake", "--only", "one_cpu,clock")
    assert code == Exit.INFRASTRUCTURE
    checks = found["a"]["checks"]
    assert "taskset" in checks["one_cpu"]["why_not"]
    assert "did not change" in checks["clock"]["why_not"]
    assert found["a"]["sentence"].startswith(
        "t/a is unsettled: nothing could be tried: the sandbox could not be limited to one CPU"
    )
