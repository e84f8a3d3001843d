from __future__ import annotations

from pathlib import Path

import pytest

from proctor.runs.image_content import image_content
from proctor.tasks.lint.check import check_task
from proctor.tasks.read import read_task

SOLVE = (
    "#!/bin/bash\nset -e\npython3 - <<'E'\nnumbers = open('/app/numbers').read().split()\nE\n"
    "echo 42 > /app/sum\n"
)
JUDGE = "import sys\n\n\ndef test_the_sum():\n    assert open('/app/sum').read() == '42\\n'\n"


def make(folder: Path, dockerfile: str, **files: str) -> Path:
    contents = {
        "task.toml": "",
        "instruction.md": "Write the sum of the numbers to /app/sum.",
        "environment/Dockerfile": dockerfile,
        "tests/test.sh": "#!/bin/bash\npytest /tests/test_sum.py && echo 1 > /logs/verifier/reward.txt\n",
        "tests/test_sum.py": JUDGE,
        "solution/solve.sh": SOLVE,
        **files,
    }
    for name, text in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def paths(folder: Path) -> list[str]:
    return sorted(each.path for each in image_content(read_task(folder).environment).files)


@pytest.mark.parametrize(
    ("dockerfile", "wanted"),
    [
        ("FROM a:1\nCOPY . /task\n", ["/task/Dockerfile", "/task/data/x", "/task/solve.sh"]),
        ("FROM a:1\nCOPY data /in\n", ["/in/x"]),
        ("FROM a:1\nWORKDIR /w\nWORKDIR sub\nCOPY solve.sh .\n", ["/w/sub/solve.sh"]),
        ("FROM a:1\nENV TO=/e\nADD solve.sh ${TO}/x.sh\n", ["/e/x.sh"]),
        ('FROM a:1\nCOPY ["solve.sh", "data", "/y/"]\n', ["/y/solve.sh", "/y/x"]),
        ("FROM a:1\nCOPY . /task\nRUN true && rm -rf /task\n", []),
        ("FROM a:1\nCOPY . /task\nRUN rm /task/*.sh && ls\n", ["/task/Dockerfile", "/task/data/x"]),
        ("FROM a:1 AS one\nCOPY . /task\nFROM b:1\nCOPY --from=one /task/data /d\n", ["/d/x"]),
        ("FROM a:1 AS one\nCOPY solve.sh /s\nFROM one\nCOPY data /d\n", ["/d/x", "/s"]),
        ("FROM a:1\nCOPY . /t\nFROM b:1\nCOPY --from=0 /t/solve.sh /x/\n", ["/x/solve.sh"]),
        ("FROM a:1\nADD https://example.org/x /x\nCOPY --from=other:1 /a /b\n", []),
    ],
)
def test_what_an_image_holds_is_worked_out_from_its_dockerfile(tmp_path, dockerfile, wanted):
    folder = make(tmp_path, dockerfile, **{"environment/solve.sh": SOLVE, "environment/data/x": "1"})
    assert paths(folder) == wanted


def test_what_dockerignore_leaves_out_is_not_in_the_image(tmp_path):
    ignored = {"environment/.dockerignore": "solution\n*.md\n", "environment/solution/solve.sh": SOLVE}
    folder = make(tmp_path, "FROM a:1\nCOPY . /task\n", **ignored)
    assert "/task/solution/solve.sh" not in paths(folder)


def test_a_ready_image_and_a_folder_without_dockerfile_hold_nothing_that_is_known(tmp_path):
    folder = make(
        tmp_path / "a", "FROM a:1\nCOPY . /\n", **{"task.toml": "[environment]\ndocker_image = 'b:1'\n"}
    )
    assert paths(folder) == []
    (tmp_path / "a/task.toml").write_text("")
    (tmp_path / "a/environment/Dockerfile").unlink()
    assert paths(tmp_path / "a") == []


def test_the_context_that_a_compose_file_names_is_used(tmp_path):
    compose = "services:\n  main:\n    build: {context: app}\n"
    folder = make(tmp_path, "FROM a:1\nCOPY solve.sh /s\n", **{
        "environment/docker-compose.yaml": compose,
        "environment/app/Dockerfile": "FROM a:1\nCOPY x /inner\n",
        "environment/app/x": "1",
    })  # fmt: skip
    assert paths(folder) == ["/inner"]


def found(folder: Path) -> list[tuple[str, str, str, str]]:
    report = check_task(folder, look_inside=image_content)
    return [
        (each.level, each.place.removeprefix(f"{folder}/"), each.message, each.detail)
        for each in report.findings
    ]


def test_a_solution_that_the_image_holds_is_an_error_with_its_line(tmp_path):
    folder = make(tmp_path, "FROM a:1\n\nCOPY . /task\n", **{"environment/hidden/old.txt": SOLVE})
    assert found(folder) == [
        (
            "error",
            "environment/Dockerfile:3",
            "the image contains solution/solve.sh (identical content), where the agent can read it",
            "/task/hidden/old.txt",
        )
    ]


def test_a_solution_inside_a_larger_file_is_found_too(tmp_path):
    text = "#!/bin/bash\n# how it is done\n  " + SOLVE.replace("\n", "\n  ") + "\necho more\n"
    folder = make(tmp_path, "FROM a:1\nCOPY notes /n\n", **{"environment/notes": text})
    (finding,) = found(folder)
    assert finding[:3] == (
        "error",
        "environment/Dockerfile:2",
        "the image contains the text of solution/solve.sh, where the agent can read it",
    )


def test_the_verifiers_own_files_are_an_error_and_clean_copies_are_not(tmp_path):
    folder = make(tmp_path, "FROM a:1\nCOPY . /app/\n", **{
        "environment/test_sum.py": JUDGE,
        "environment/numbers": "1 2 3 4 5 6 7 8 9 10\n",
        "tests/numbers": "1 2 3 4 5 6 7 8 9 10\n",
        "environment/module.py": "def total(numbers):\n    return 0\n",
        "tests/old_module.py": "def total(numbers):\n    return 0\n",
    })  # fmt: skip
    judges = "python3 -m pytest /tests/test_sum.py && echo 1 > /logs/verifier/reward.txt"
    (folder / "tests/test.sh").write_text(f"#!/bin/bash\ncp /tests/old_module.py /tmp\n{judges}\n")
    (finding,) = found(folder)
    assert finding[0] == "error"
    assert "tests/test_sum.py (identical content)" in finding[2]
    assert finding[3] == "/app/test_sum.py"


def test_another_file_of_the_solution_in_the_image_is_a_warning(tmp_path):
    data = {
        "environment/a.json": '{"answer": [1, 2, 3, 4, 5]}',
        "solution/b.json": '{"answer": [1, 2, 3, 4, 5]}',
    }
    folder = make(tmp_path, "FROM a:1\nCOPY a.json /app/\n", **data)
    (finding,) = found(folder)
    assert finding[0] == "warning"


def test_short_and_empty_files_are_no_coincidence_to_speak_of(tmp_path):
    same = {"environment/__init__.py": "", "solution/__init__.py": "", "tests/__init__.py": ""}
    folder = make(tmp_path, "FROM a:1\nCOPY . /app/\n", **same)
    (folder / "solution/solve.sh").write_text("#!/bin/bash\nmake\n")
    (folder / "environment/build.sh").write_text("set -e\nmake\nmake install\n")
    assert found(folder) == []
