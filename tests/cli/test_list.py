"""`proctor list` shows what can be run and what stands in the way."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.cli.main import main

EXAMPLES = str(Path(__file__).parents[2] / "experiments.d")


def test_the_built_in_experiments_are_listed_with_summary_tags_and_params(capsys):
    assert main(["list"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["experiment", "summary", "tags", "params"]
    (line,) = [line for line in lines if line.startswith("memory_db ")]
    assert "An agent simulation" in line
    assert "database, sqlite, simulation" in line
    assert line.endswith("arm, num_agents, num_steps, commit_every, journal_mode, rounds, parameters")


def test_a_folder_of_ones_own_is_listed_too_and_a_tag_narrows(capsys):
    assert main(["list", "--experiments", EXAMPLES, "--tag", "example"]) == 0
    slugs = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert slugs == ["json_encode", "sorting"]
    assert main(["list", "--tag", "nobody has this"]) == 0
    assert "No experiment matches" in capsys.readouterr().err


def test_one_experiment_is_shown_with_its_parameters(capsys):
    assert main(["list", "sorting", "--experiments", EXAMPLES]) == 0
    out = capsys.readouterr().out
    assert "sorting.py:" in out
    assert "size   int   1000" in out
    assert "random | sorted | reversed" in out
    assert "≥ 1" in out
    assert "no other parameters" in out


def test_all_parameters_of_all_experiments_can_be_shown(capsys, tmp_path):
    (tmp_path / "loose.py").write_text(
        "from proctor import Experiment, register_experiment\n"
        "@register_experiment('loose')\n"
        "class Loose(Experiment):\n"
        "    def __init__(self, need: int, **more): ...\n"
        "    def execute_once(self, context): return {}\n"
    )
    assert main(["list", "--params", "--experiments", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "pragma_profile" in out
    assert "required" in out
    assert "other parameters are accepted too" in out


def test_json_holds_everything(capsys, tmp_path):
    (tmp_path / "bad.py").write_text("print('noise')\n1 / 0\n")
    assert main(["list", "--json", "--experiments", EXAMPLES, "--experiments", str(tmp_path)]) == 0
    data = json.loads(capsys.readouterr().out)
    (sorting,) = [each for each in data["experiments"] if each["slug"] == "sorting"]
    assert sorting["tags"] == ["example"]
    assert len(sorting["digest"]) == 64
    assert sorting["open_params"] is False
    assert sorting["params"]["size"] == {
        "type": "int",
        "required": False,
        "default": 1000,
        "choices": [],
        "minimum": 1,
        "maximum": None,
        "nullable": False,
        "description": "numbers to sort",
        "each": "",
        "aliases": [],
    }
    assert data["broken"] == [
        {
            "source": f"{tmp_path}/bad.py",
            "error": f"{tmp_path}/bad.py:2: ZeroDivisionError: division by zero",
        }
    ]


def test_a_broken_module_is_named_on_standard_error_and_the_rest_is_listed(capsys, tmp_path):
    (tmp_path / "bad.py").write_text("import no_such_module_at_all\n")
    assert main(["list", "--experiments", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert "pragma_profile" in captured.out
    assert captured.err == (
        f"proctor: not loaded: {tmp_path}/bad.py:1: ModuleNotFoundError: "
        "No module named 'no_such_module_at_all'\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sortin", "--experiments", EXAMPLES], "did you mean 'sorting'?"),
        (["--experiments", "no/such"], "no such folder, file or module"),
    ],
)
def test_what_does_not_exist_is_a_usage_error(capsys, arguments, message):
    assert main(["list", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_listing_imports_nothing_heavy():
    code = (
        "import sys; from proctor.cli.main import main; main(['list']); "
        "heavy = {'numpy', 'scipy', 'sklearn', 'asyncio', 'rich', 'sqlalchemy', 'yaml', 'psutil', "
        "'importlib.metadata', 'proctor.experiments.spatial.kd_tree'}; "
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
