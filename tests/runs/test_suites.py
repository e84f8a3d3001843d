from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.cli.main import main
from proctor.engine.ab_file import read
from proctor.errors import Exit, UsageError
from proctor.runs.suites import Suite, SuiteRequest, cache_of_setup, read_suite, request_from
from proctor.trial.environment import capture_environment

TEST = """
import pytest
from made_library import work


@pytest.mark.parametrize("n", [200, 300])
def test_work(benchmark, n):
    benchmark.extra_info["n"] = n
    assert benchmark(work, n) == sum(range(n))


def test_broken(benchmark):
    benchmark(lambda: 1 / 0)
"""
ASV = """
from made_library import work


class Work:
    params = [200, 300]
    param_names = ["n"]

    def time_work(self, n):
        work(n)

    def time_broken(self, n):
        raise RuntimeError("it is broken")

    def track_sum(self, n):
        return work(n)
"""


def git(folder: Path, *arguments: str) -> None:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", *arguments]
    subprocess.run(command, cwd=folder, capture_output=True, check=True)


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A suite's own plugins are its own business; those installed here need a second to load."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with two commits: in the second, all work is done four times."""
    root = tmp_path / "project"
    (root / "bench").mkdir(parents=True)
    (root / "asv_bench").mkdir()
    (root / "bench" / "test_bench.py").write_text(TEST)
    (root / "asv_bench" / "__init__.py").write_text("")
    (root / "asv_bench" / "bench.py").write_text(ASV)
    library = root / "made_library.py"
    library.write_text("def work(n):\n    return sum(range(n))\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "fast")
    library.write_text("def work(n):\n    return [sum(range(n)) for _ in range(4)][-1]\n")
    git(root, "commit", "-qam", "slow")
    monkeypatch.chdir(root)
    monkeypatch.setenv("PROCTOR_OUTPUT_DIR", str(tmp_path / "results"))
    return root


def test_a_suite_becomes_a_spec_with_a_point_for_each_case(project):
    suite = read_suite(SuiteRequest(kind="asv", paths=("asv_bench",), exclude=("broken",)))
    spec = suite.spec()
    assert [(body.params["name"], body.sweep) for body in spec.experiments] == [
        ("bench.Work.time_work", {"case": ("n=200", "n=300")}),
        ("bench.Work.track_sum", {"case": ("n=200", "n=300")}),
    ]
    assert (spec.name, spec.base_dir) == ("project-asv", str(project))
    timed = suite.timed()
    assert len(timed.benchmarks) == 2
    assert "2 of the benchmarks give a number" in timed.notes[-1]
    with pytest.raises(UsageError, match="give a number"):
        Suite(asked=suite.asked, project=suite.project, python="", benchmarks=suite.benchmarks[2:]).timed()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--pytest", "bench", "--asv", "asv_bench"), "cannot be combined: measure one suite at a time"),
        (("--pytest", "nowhere"), "nowhere: no such file or folder"),
        (("--asv", "asv_bench", "--include", "nothing-like-it"), "none of its 6 benchmarks matches"),
        (("--asv", "asv_bench/__init__.py"), "no benchmark was found"),
        (("--pytest", "made_library.py", "-t", "x"), "cannot be combined with -t"),
        (("--python", sys.executable), "--python goes with --pytest or --asv"),
        (("--asv", "asv_bench", "--python", "/nowhere/python"), "--python: /nowhere/python is not a Python"),
    ],
)
def test_what_cannot_be_run_is_said_before_anything_runs(project, capsys, given, said):
    assert main(["run", *given]) == Exit.USAGE
    assert said in capsys.readouterr().err


def test_ab_takes_a_spec_or_a_suite(project, capsys):
    for given, said in (
        ((), "name a spec, a suite with --pytest or --asv"),
        (("spec.yaml", "--asv", "asv_bench"), "--asv cannot be combined with the file spec.yaml"),
        (("spec.yaml", "--include", "x"), "--include and --exclude go with --pytest or --asv"),
        (("--asv", "asv_bench", "--set", "seed=1"), "--set and --experiments go with a spec"),
    ):
        assert main(["ab", *given]) == Exit.USAGE
        assert said in capsys.readouterr().err


def test_a_run_measures_what_works_and_reports_what_does_not(project, capsys):
    (project / "bench" / "test_not_importable.py").write_text("import no_such_module_at_all\n")
    fast = ["--set", "iterations.measured=3", "--set", "iterations.warmup=0"]
    code = main(["run", "--pytest", "bench", "--python", sys.executable, "--json", *fast])
    said = capsys.readouterr()
    assert code == Exit.WORSE
    assert "no_such_module_at_all" in said.err
    summary = json.loads(said.out)
    assert summary["outcomes"] == {"passed": 2, "failed": 1}


def test_a_slower_version_is_named_by_benchmark_and_a_broken_one_does_not_stop_the_others(project, capsys):
    saved = project.parent / "saved.json"
    choice = ["--include", "n=200", "--pairs", "4", "--margin", "50%", "--no-confirm", "--output", str(saved)]
    assert main(["ab", "--asv", "asv_bench", "--a", "HEAD~1", "--b", "HEAD", *choice]) == Exit.WORSE
    said = capsys.readouterr()
    assert "track_*" in said.err
    assert "not compared: bench.Work.time_broken(n=200)" in said.out
    found = read(saved)
    assert [result.label for result in found.results] == ["bench.Work.time_work(n=200)"]
    assert found.results[0].verdict.value == "slower"
    assert "it is broken" in found.lost[0]


SEEN = """
import os

import made_library


def _note(file):
    with open(os.environ["SEEN_LOG"], "a") as log:
        log.write(f"{file} {made_library.__file__}\\n")
"""
SEEN_BY_PYTEST = f"""{SEEN}

def test_seen(benchmark):
    _note(__file__)
    benchmark(made_library.work, 200)
"""
SEEN_BY_ASV = f"""{SEEN}

class Seen:
    def setup(self):
        _note(__file__)

    def time_seen(self):
        made_library.work(200)
"""


@pytest.mark.needs("bubblewrap", "git")
@pytest.mark.parametrize("kind", ["pytest", "asv"])
def test_both_revisions_of_a_suite_and_the_working_tree_are_seen_at_one_path(project, monkeypatch, kind):
    log = project.parent / "log"
    monkeypatch.setenv("SEEN_LOG", str(log))
    (project / "bench" / "test_seen.py").write_text(SEEN_BY_PYTEST)
    (project / "asv_bench" / "seen.py").write_text(SEEN_BY_ASV)
    git(project, "add", ".")
    git(project, "commit", "-qm", "seen")
    suite = {"pytest": "bench/test_seen.py", "asv": "asv_bench"}[kind]
    saved = project.parent / "saved.json"
    words = ["--include", "seen", "--pairs", "4", "--no-confirm", "--output", str(saved)]
    with (project / "made_library.py").open("a") as file:
        file.write("# changed\n")
    assert main(["ab", f"--{kind}", suite, "--a", "HEAD", *words]) in {Exit.OK, Exit.WORSE, Exit.INCONCLUSIVE}
    seen = log.read_text().splitlines()
    assert len(seen) >= 2 + 2 * 4
    assert len(set(seen)) == 1
    (result,) = read(saved).results
    assert {pair.paths for pair in result.pairs} == {"same"}
    assert all(pair.layouts["a"] != pair.layouts["b"] for pair in result.pairs)


def test_a_comparison_of_nothing_is_refused(project, capsys):
    assert main(["ab", "--asv", "asv_bench", "--include", "time_broken"]) == Exit.USAGE
    assert "nothing could be compared" in capsys.readouterr().err


def test_no_suite_was_asked_for():
    assert request_from((), (), None) is None


def test_the_shared_folder_of_a_command_is_gone_after_it(monkeypatch):
    monkeypatch.setenv("PROCTOR_SUITE_CACHE", "outer")
    with cache_of_setup():
        inner = Path(sys.modules["os"].environ["PROCTOR_SUITE_CACHE"])
        assert inner.is_dir()
    assert not inner.exists()
    assert sys.modules["os"].environ["PROCTOR_SUITE_CACHE"] == "outer"


def test_the_environment_is_that_of_the_interpreter_that_measures(tmp_path):
    other = capture_environment(sys.executable)
    assert other["python"]["executable"] == sys.executable
    assert "pytest" in {name.lower() for name in other["packages"]}
    silent = tmp_path / "python"
    assert capture_environment(str(silent))["python"] == {"executable": str(silent)}


def test_an_interpreter_without_proctor_runs_a_suite(project, tmp_path, capsys):
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    fast = ["--set", "iterations.measured=3", "--set", "iterations.warmup=0"]
    chosen = ["--asv", "asv_bench/bench.py", "--include", "n=200", "--exclude", "broken"]
    assert main(["run", *chosen, "--python", str(bare), "--json", *fast]) == Exit.OK
    summary = json.loads(capsys.readouterr().out)
    assert summary["outcomes"] == {"passed": 2}
    (folder,) = (project.parent / "results" / "project-asv").iterdir()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["environment"]["python"]["executable"] == str(bare / "bin" / "python")
    assert "msgspec" not in manifest["environment"]["packages"]
    assert main(["run", "--pytest", "bench", "--python", str(bare)]) == Exit.USAGE
    assert "pytest is not installed for" in capsys.readouterr().err
