from __future__ import annotations

import pytest

from proctor.tasks.lint.check import check_task

TOKEN = "ghp_0123456789abcdefghijABCDEFGHIJ012345"


def found(folder):
    return [
        (each.level, each.place.removeprefix(f"{folder}/"), each.detail)
        for each in check_task(folder).findings
    ]


@pytest.mark.parametrize(
    ("table", "level", "detail"),
    [
        ('[environment.env]\nAPI_KEY = "a1b2c3d4e5f6"', "warning", "[environment.env] API_KEY"),
        ('[verifier.env]\nDB = "postgres://u:hunter22@h/db"', "warning", "[verifier.env] DB"),
        ('[solution.env]\nX = "${NEEDED}"', "hint", "[solution.env] X = ${NEEDED}"),
        ('[environment.env]\nX = "${PROCTOR_MODEL_API_KEY}"', "error", "[environment.env] X"),
    ],
)
def test_secrets_and_variables_of_the_machine_are_reported(make_task, table, level, detail):
    folder = make_task("t", environment=f"{table}\n")
    assert (level, "task.toml", detail) in found(folder)


def test_defaults_examples_and_short_values_are_not(make_task):
    table = '[environment.env]\nA_TOKEN = "${A:-none}"\nB_TOKEN = "changeme-please"\nC_TOKEN = "abc"\n'
    assert [each for each in found(make_task("t", environment=table)) if each[1] == "task.toml"] == []


def test_tokens_in_files_and_dockerfiles_are_reported_without_their_value(make_task):
    folder = make_task("t")
    (folder / "tests" / "data.txt").write_text(f"one\ntwo {TOKEN}\n")
    (folder / "tests" / "data.bin").write_bytes(b"\xff" + TOKEN.encode())
    (folder / "environment" / "Dockerfile").write_text(
        "FROM debian\nENV DB_PASSWORD=hunter2hunter\nARG B_KEY=$X\nWORKDIR /app\n"
    )
    report = found(folder)
    assert ("warning", "tests/data.txt:2", "a token or a private key") in report
    assert ("warning", "environment/Dockerfile:2", "DB_PASSWORD") in report
    assert len([each for each in report if each[0] == "warning"]) == 2
    assert TOKEN not in str(check_task(folder))
    assert "hunter2" not in str(check_task(folder))
