"""Programs that agents wrote, measured in real sandboxes, and what does not help them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import jsonschema
import pytest
from tests.integration.test_format import make
from tests.integration.test_rollouts import TASKS, latest

from proctor.cli.main import main
from proctor.model.record import AttemptRecord

pytestmark = pytest.mark.needs("bubblewrap")

TABLE = """
[verifier.performance]
command = "sh work.sh $PROCTOR_SEED"
metric = "{metric}"
reference = "reference"
rounds = 6
target = 2
precision = 0.9
"""
SLOW = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; . ./answer.sh; answer $1\n"
FAST = ". ./answer.sh; answer $1\n"
PASS = "echo 1 > /logs/verifier/reward.txt\n"


def measured(folder: Path, solve: str, metric: str = "cpu", **files: str) -> AttemptRecord:
    """The record of an oracle that does this, on a task whose program counts and then answers."""
    task = make(
        folder / "task",
        below=TABLE.format(metric=metric),
        **{
            "environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /place\nCOPY *.sh /place/\n",
            "environment/work.sh": SLOW,
            "environment/answer.sh": "answer() { echo $(($1 % 1000)); }\n",
            "reference/work.sh": SLOW,
            "tests/test.sh": PASS,
            "solution/solve.sh": solve,
            **files,
        },
    )
    spec = {"name": "p", "sandbox": {"host_root": True}, "tasks": [{"path": str(task), "agent": "oracle"}]}
    (folder / "spec.json").write_text(json.dumps(spec))
    main(["run", str(folder / "spec.json")])
    return latest().trials[0].attempts[-1]


def about(record: AttemptRecord) -> dict:
    return dict(record.metrics["performance"])


def write(text: str, name: str = "work.sh") -> str:
    return f"cat > /place/{name} <<'EOF'\n{text}EOF\n"


def test_a_faster_program_earns_its_reward_and_every_document_says_so(tmp_path, capsys):
    record = measured(tmp_path, write(FAST))
    assert (record.outcome, record.reward, about(record)["verdict"]) == ("passed", 1.0, "settled")
    text = capsys.readouterr().out
    assert "times as good" in text
    (folder,) = (each.parent for each in Path(os.environ["PROCTOR_ROLLOUTS_DIR"]).rglob("manifest.json"))
    trial = next(folder.glob("trials/*/0"))
    schemas = Path(__file__).parents[2] / "src/proctor/runfolder/schemas"
    summary = json.loads((folder / "summary.json").read_text())
    for document, name in (
        (summary, "summary"),
        (json.loads((trial / "evaluation_results.json").read_text()), "evaluation_results"),
    ):
        jsonschema.validate(document, json.loads((schemas / f"{name}.json").read_text()))
    assert summary["performance"]["measured"] == 1
    assert summary["performance"]["ratio"] > 2
    assert summary["arms"][0]["performance"]["place"] == [1, 1]
    assert "## Performance" in (trial / "scoring_results.md").read_text()
    assert (trial / "performance.json").is_file()
    assert "round 1, seed" in (trial / "logs/eval.log").read_text()
    (tmp_path / "gate.json").write_text('["performance.ratio_low >= 1"]')
    assert main(["gate", str(folder), "--rules", str(tmp_path / "gate.json")]) == 0
    assert main(["export", str(folder), str(tmp_path / "out"), "--format", "csv"]) == 0
    assert "metrics.performance.ratio" in (tmp_path / "out/trials.csv").read_text()


CHEATS = {
    "holds an answer": (write("echo 7\n"), "its output is not what"),
    "leaves a process": (write(f"{SLOW}sleep 60 > /dev/null 2>&1 &\n"), "left a process running"),
    "changes the shell": (
        "printf '#!/bin/sh\\necho 7\\n' > /usr/local/bin/sh; chmod +x /usr/local/bin/sh\n"
        + write("exit 4\n"),
        "exit code 4",
    ),
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_what_is_no_program_earns_nothing(tmp_path, cheat):
    solve, said = CHEATS[cheat]
    record = measured(tmp_path, solve)
    assert (record.outcome, record.reward) == ("failed", 0.0)
    assert said in record.failure.message


def test_neither_a_slowed_reference_nor_a_cache_nor_a_waiting_process_nor_a_changed_python_helps(tmp_path):
    slowed = "answer() { i=0; while [ $i -lt 90000 ]; do i=$((i+1)); done; echo $(($1 % 1000)); }\n"
    cached = f"python3 -c pass || exit 6; [ -e /place/cache ] && exit 5; touch /place/cache; {SLOW}"
    waiting = "(while :; do :; done) > /dev/null 2>&1 &\n"
    site = "$(python3 -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))')"
    custom = f'mkdir -p "{site}"; echo "import os; os._exit(9)" > "{site}/sitecustomize.py"\n'
    changed = f"{custom}python3 -c pass; [ $? = 9 ] || exit 1\n"
    solve = changed + write(slowed, "old.sh") + "cp old.sh answer.sh\n" + write(cached) + waiting
    record = measured(tmp_path, solve)
    found = about(record)
    assert (record.outcome, record.reward, found["verdict"]) == ("failed", 0.0, "settled")


def test_the_memory_of_the_largest_process_counts_whoever_waits_for_it(tmp_path):
    record = measured(
        tmp_path,
        write("python3 -c 'x = b\"x\" * 40_000_000'; . ./answer.sh; answer $1\n"),
        metric="memory",
    )
    assert about(record)["program"] > 40_000_000
    assert record.reward == 0.0


def test_the_oracles_of_the_sample_tasks_are_better_than_their_references(tmp_path):
    spec = json.dumps(
        {
            "name": "samples",
            "sandbox": {"host_root": True},
            "tasks": [{"dataset": str(TASKS), "include": ["faster-*", "leaner-*"], "agent": "oracle"}],
        }
    )
    (tmp_path / "spec.json").write_text(spec)
    assert main(["run", str(tmp_path / "spec.json")]) == 0
    records = [trial.counted for trial in latest().trials]
    assert [each.reward for each in records] == [1.0, 1.0]
    assert all(about(each)["interval"][0] > 1.5 for each in records)
