from __future__ import annotations

import json
from pathlib import Path

import pytest

from proctor.errors import TaskError
from proctor.runs.image_content import image_content
from proctor.tasks.lint.check import check_folders, check_task

GOOD = {
    "task.toml": 'schema_version = "1.4"\n[environment]\nnetwork_mode = "no-network"\n',
    "instruction.md": "Write the sum of the numbers to /app/sum.txt.\n",
    "environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\n",
    "tests/test.sh": "#!/bin/bash\n[ -f /app/sum.txt ] && echo 1 > /logs/verifier/reward.txt\n",
    "solution/solve.sh": "#!/bin/bash\necho 3 > /app/sum.txt\n",
}


def make(folder: Path, **changed: str | None) -> Path:
    for name, text in {**GOOD, **changed}.items():
        if text is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(text.encode())
    return folder


def found(folder: Path, **options) -> list[tuple[str, str, str]]:
    report = check_task(folder, look_inside=image_content, **options)
    return [(each.level, each.place.removeprefix(f"{folder}/"), each.message) for each in report.findings]


def test_a_good_task_has_no_findings(tmp_path):
    assert found(make(tmp_path / "t")) == []


def test_the_sample_tasks_of_this_repository_are_clean():
    folder = Path(__file__).parents[3] / "tasks"
    reports = check_folders(folder, look_inside=image_content)
    assert len(reports) >= 8
    assert [finding for report in reports for finding in report.findings] == []


@pytest.mark.parametrize(
    ("changed", "level", "place", "said"),
    [
        ({"task.toml": "a = ["}, "error", "task.toml", "not valid TOML"),
        ({"task.toml": "[agent]\ntimeout_sec = 'x'\n"}, "error", "task.toml:2", "must be a number"),
        ({"task.toml": "[agent]\ntimeout_sce = 1\n"}, "warning", "task.toml:2", "'timeout_sce' is not a key"),
        ({"tests/test.sh": None}, "error", "tests/test.sh", "missing"),
        ({"instruction.md": "Do.\n"}, "warning", "instruction.md", "instruction is very short"),
        ({"instruction.md": "Look into\n/tests/a, please.\n"}, "warning", "instruction.md:2", "names /tests"),
        (
            {"instruction.md": "Do as /solution/solve.sh does.\n"},
            "warning", "instruction.md:1", "names /solution/solve.sh",
        ),
        (
            {"instruction.md": "You have 60 seconds to complete this task.\n"},
            "warning", "instruction.md", "another time",
        ),
        (
            {"instruction.md": "Write the sum to /app/sum.txt.\n<!-- a canary -->\n"},
            "hint", "instruction.md", "canary comment",
        ),
        ({"tests/test.sh": "echo 1 > reward.txt\n"}, "hint", "tests/test.sh:1", "no #! line"),
        ({"tests/test.sh": "#!/bin/bash\r\necho reward\r\n"}, "error", "tests/test.sh", "Windows line ends"),
        ({"tests/test.sh": "#!/bin/bash\nexit 0\n"}, "warning", "tests/test.sh", "writes reward.txt"),
        (
            {"tests/test.sh": "#!/bin/bash\npytest /tests || true\necho 1 > /logs/verifier/reward.txt\n"},
            "error", "tests/test.sh:3", "whatever the tests find",
        ),
        (
            {"tests/test.sh": "#!/bin/sh\npytest /tests/test_it.py && echo 1 > /logs/verifier/reward.txt\n"},
            "warning", "tests/test.sh:2", "not in tests/",
        ),
        (
            {"tests/test.sh": "#!/bin/bash\n# no curl here\ncurl http://x > /logs/verifier/reward.txt\n"},
            "warning", "tests/test.sh:3", "'curl' needs the network",
        ),
        (
            {"tests/test.sh": "#!/bin/sh\npython3 -m pip install x || :\necho > /logs/verifier/reward.txt\n"},
            "warning", "tests/test.sh:2", "'python3 -m pip install' needs the network",
        ),
        (
            {"tests/test.sh": "#!/bin/bash\napt-get -y -q install x\necho > /logs/verifier/reward.txt\n"},
            "warning", "tests/test.sh:2", "'apt-get -y -q install' needs the network",
        ),
        ({"solution/solve.sh": None}, "warning", "solution", "no solution/solve.sh"),
        (
            {"solution/solve.sh": "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n"},
            "warning", "solution/solve.sh:2", "the solution uses /logs/verifier",
        ),
        ({"environment/Dockerfile": "FROM debian\n"}, "hint", "environment/Dockerfile:1", "can change"),
        ({"environment/Dockerfile": "FROM a/b:latest\n"}, "hint", "environment/Dockerfile:1", "can change"),
        ({"environment/Dockerfile": "FORM debian:12\n"}, "error", "environment/Dockerfile:1", "not an instr"),
        (
            {"environment/Dockerfile": "FROM debian:12\nCOPY solution/ /x\n"},
            "error", "environment/Dockerfile:2", "not in the build context",
        ),
        ({"task.toml": "[agent]\ntimeout_sec = 200000\n"}, "warning", "task.toml", "probably a mistake"),
        ({"task.toml": "[verifier]\ntimeout_sec = 0.1\n"}, "warning", "task.toml", "probably a mistake"),
        ({"task.toml": "[environment]\nmemory_mb = 2\n"}, "warning", "task.toml", "memory is 2 MB"),
        ({"task.toml": "[environment]\nstorage_mb = 1\n"}, "warning", "task.toml", "storage is 1 MB"),
        ({"task.toml": "[environment]\nworkdir = 'app'\n"}, "error", "task.toml", "not an absolute path"),
        ({"task.toml": "[environment]\ngpus = 2\n"}, "error", "task.toml", "asks for 2 GPUs"),
        ({"task.toml": "[task]\nname = 'a/b c'\n"}, "hint", "task.toml", "Harbor refuses it"),
        (
            {"task.toml": "[environment]\ndocker_image = 'debian'\n"},
            "hint", "task.toml", "can change at any time",
        ),
        ({"overrides.json": "{"}, "error", "overrides.json", "not valid JSON"),
    ],
)  # fmt: skip
def test_each_fault_is_named_with_its_place(tmp_path, changed, level, place, said):
    findings = found(make(tmp_path / "t", **changed))
    assert any(each[0] == level and each[1] == place and said in each[2] for each in findings), findings


@pytest.mark.parametrize(
    "changed",
    [
        {"instruction.md": "Mend what is in /app/tests and ./tests/a, and in src/tests/b.\n"},
        {"instruction.md": "See https://example.org/tests/ and /tests-data and /testsuite.\n"},
        {"instruction.md": "Write the result to /solution/result.json, please.\n"},
        {"solution/solve.sh": "#!/bin/bash\npytest /app/tests\n# not /tests/x\n"},
        {
            "tests/test.sh": "#!/bin/bash\npython3 /tests/judge.py\n",
            "tests/judge.py": "open('/x/reward.json')\n",
        },
        {"tests/test.sh": "#!/bin/bash\nuvx rewardkit /tests\n", "task.toml": ""},
        {"tests/test.sh": "#!/bin/bash\nset -e\npytest /tests\necho 1 > /logs/verifier/reward.txt\n"},
        {"tests/test.sh": "#!/bin/bash\ncurl localhost:80 && echo 1 > /logs/verifier/reward.txt\n"},
        {"environment/Dockerfile": "FROM debian:12 AS one\nFROM one\n"},
        {"environment/Dockerfile": "FROM ${BASE}\n"},
    ],
)
def test_what_is_right_is_left_alone(tmp_path, changed):
    assert found(make(tmp_path / "t", **changed)) == []


def test_errors_come_first_and_hints_are_kept_apart(tmp_path):
    make(tmp_path / "t", **{"overrides.json": "{", "instruction.md": "Do.\n"})
    report = check_task(tmp_path / "t")
    assert [each.level for each in report.findings] == ["error", "warning"]
    assert len(report.errors) == 1
    make(tmp_path / "u", **{"task.toml": "[agent]\ntimeout_sce = 1\n"})
    hints = [each.hint for each in check_task(tmp_path / "u").findings]
    assert any("did you mean 'timeout_sec'?" in hint for hint in hints)


def test_steps_are_checked_each(tmp_path):
    folder = tmp_path / "t"
    make(folder, **{
        "task.toml": '[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n',
        "instruction.md": None, "tests/test.sh": None, "solution/solve.sh": None,
        "steps/one/instruction.md": "Do the first thing in /app.\n",
        "steps/one/tests/test.sh": "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n",
        "steps/one/solution/solve.sh": "#!/bin/bash\ntrue\n",
        "steps/two/instruction.md": "Do the second thing in /app.\n",
        "steps/two/tests/test.sh": "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n",
    })  # fmt: skip
    assert [each[1:] for each in found(folder)] == [("steps/two", "step 'two' has no solution/solve.sh")]


def test_a_rubric_without_a_test_is_named(tmp_path):
    folder = tmp_path / "t"
    meta = {
        "instructions": "Mend the program, please.",
        "rubrics": [{"id": "nice"}, {"id": "works", "tests": ["t.sh"]}],
        "repo": "repo",
    }
    for name, text in {
        "tb_meta.json": json.dumps(meta),
        "repo/a.py": "",
        "tests/t.sh": "#!/bin/sh\n",
        "solution/solve.sh": "#!/bin/sh\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    assert any("rubric 'nice' has no test" in each[2] for each in found(folder))


def test_links_and_large_files_are_named(tmp_path, monkeypatch):
    folder = make(tmp_path / "t")
    (folder / "environment/link").symlink_to("/etc/hostname")
    monkeypatch.setattr("proctor.tasks.lint.content.LARGE_BYTES", 100)
    (folder / "environment/large.bin").write_bytes(b"\0" * 200)
    said = [each[2] for each in found(folder)]
    assert any("a link" in each for each in said)
    assert any("part of every copy of the task" in each for each in said)


def test_a_link_that_leads_out_of_the_tests_is_an_error(tmp_path):
    folder = make(tmp_path / "t")
    (folder / "tests/data").symlink_to("/etc/hostname")
    assert found(folder) == [
        ("error", "tests/data", "a link to something outside the task, which is not copied with it")
    ]


@pytest.mark.parametrize(
    ("known", "said", "unproven"),
    [
        ({}, [], ("oracle", "nop")),
        ({"oracle": {"passed"}, "nop": {"failed"}}, [], ()),
        ({"oracle": {"passed"}, "nop": {"partial"}}, [], ()),
        ({"oracle": {"failed"}, "nop": {"failed"}}, ["the oracle ended as failed"], ()),
        ({"oracle": {"passed"}, "nop": {"sandbox_error"}}, [], ("nop",)),
        ({"oracle": {"passed"}, "nop": {"passed", "failed"}}, ["nop has passed"], ()),
    ],
)
def test_what_runs_have_shown_is_said_and_what_none_has_is_counted(tmp_path, known, said, unproven):
    report = check_task(make(tmp_path / "t"), proofs=lambda name, digest: known)
    assert report.unproven == unproven
    for finding, wanted in zip(report.findings, said, strict=True):
        assert wanted in finding.message


def test_a_folder_without_tasks_is_refused(tmp_path):
    with pytest.raises(TaskError, match="no such folder"):
        check_folders(tmp_path / "gone")
    with pytest.raises(TaskError, match="no task in it"):
        check_folders(tmp_path)
