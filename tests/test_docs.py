"""Documentation is tested: every command runs, every file that is named exists, every setting is listed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.model.outcome import Outcome

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELL = {"", "sh", "shell", "bash", "console"}
QUICK = ("--set", "iterations.measured=1", "--set", "iterations.warmup=0")
"""Documented specs measure for some seconds; here it is enough that they work."""


def commands_of(page: Path) -> Iterator[list[str]]:
    """The lines of shell blocks that call proctor."""
    for language, body in FENCE.findall(page.read_text()):
        if language not in SHELL:
            continue
        for line in body.replace("\\\n", " ").splitlines():
            words = shlex.split(line.strip().removeprefix("$ "), comments=True)
            if words and words[0] == "proctor" and not {"SPEC", "RUN", "A", "B"} & set(words):
                yield words[1:]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with two commits, some runs in its store and two result files, as a reader would have."""
    folder = tmp_path_factory.mktemp("workshop")
    for name in ("specs", "experiments.d", "tasks", "deploy", "examples/suites"):
        shutil.copytree(ROOT / name, folder / name)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run([*git, "init", "-q", "."], cwd=folder, check=True)
    for message in ("one", "two"):
        subprocess.run([*git, "add", "-A"], cwd=folder, check=True)
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", message], cwd=folder, check=True)
    for _ in range(5):
        proctor(["run", "specs/sorting.yaml", "--set", "params.size=100", *QUICK], folder, codes={0})
    results = sorted((folder / "results/sorting").rglob("trials/*/0/result.json"))
    for name, source in (("before.json", results[0]), ("after.json", results[-1])):
        shutil.copy(source, folder / name)
    return folder


def proctor(words: list[str], cwd: Path, codes: set[int]) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PROCTOR_")}
    environment["PROCTOR_KEYS_DIR"] = str(cwd / ".keys")
    done = subprocess.run(
        [sys.executable, "-m", "proctor.cli.main", *words],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    output = done.stdout + done.stderr
    assert done.returncode in codes, f"proctor {shlex.join(words)}: {done.returncode}\n{output}"
    assert "Traceback" not in output, output
    return output


def answers(words: list[str], cwd: Path) -> None:
    """A command that serves: it prints its address, answers there, and ends when it is asked to."""
    words = [each for each in words if each != "--open"]
    closed = ["--no-open"] if words[0] == "view" else []
    with subprocess.Popen(
        [sys.executable, "-m", "proctor.cli.main", *words, *closed, "--port", "0"],
        cwd=cwd,
        env={key: value for key, value in os.environ.items() if not key.startswith("PROCTOR_")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as server:
        try:
            lines = iter(server.stdout.readline, "") if server.stdout else iter(())
            line = next(each for each in lines if each.startswith("http"))
            address = "/".join(line.strip().split("/")[:3])
            direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with direct.open(f"{address}/livez", timeout=30) as answer:
                assert answer.status == 200
        finally:
            server.terminate()
        assert server.wait(30) == 0


@pytest.mark.parametrize(
    "page", [each for each in PAGES if list(commands_of(each))], ids=lambda page: page.stem
)
def test_every_command_of_a_page_works(page: Path, workshop: Path, tmp_path: Path):
    folder = tmp_path / "project"
    shutil.copytree(workshop, folder, symlinks=True)
    for words in commands_of(page):
        if words[0] in {"serve", "view"}:
            answers(words, folder)
            continue
        quick = QUICK if words[0] == "run" and words[1].endswith(("_baseline.yaml", "_sweep.yaml")) else ()
        proctor([*words, *quick], folder, codes={0, 1, 3})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_file_a_page_links_to_exists(page: Path):
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text())
    missing = [link for link in links if not (page.parent / link).exists()]
    assert missing == []


def test_every_make_target_named_in_the_docs_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        named = set(re.findall(r"^make ([a-z-]+)", page.read_text(), re.MULTILINE))
        assert named <= targets, page


def test_the_generated_reference_is_up_to_date():
    done = subprocess.run(  # a process of its own: click remembers the help option of whoever asked first
        [sys.executable, str(ROOT / "scripts/reference.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_outcome_is_in_the_architecture_page():
    architecture = (ROOT / "ARCHITECTURE.md").read_text()
    assert [outcome for outcome in Outcome if f"`{outcome}`" not in architecture] == []


def test_the_page_of_outcomes_says_of_each_what_the_code_does():
    page = (ROOT / "docs/reference/outcomes.md").read_text()
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in page.splitlines()
        if line.startswith("| `")
    ]
    told = {row[0].strip("`"): row[2:] for row in rows}
    word = {True: "yes", False: "no"}
    assert told == {
        outcome.value: [outcome.blame.value, word[outcome.scored], word[outcome.retryable]]
        for outcome in Outcome
    }


def test_the_layers_in_the_architecture_page_are_those_that_are_checked():
    import tomllib

    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = config["tool"]["importlinter"]["contracts"][0]["layers"]
    drawn = (ROOT / "ARCHITECTURE.md").read_text()
    for layer in layers:
        assert layer.replace("proctor.", "") in drawn, layer


def test_the_walk_of_a_trial_names_functions_that_exist():
    root = Path(__file__).parents[1]
    steps = re.findall(r"`([\w/]+\.py):([\w.]+)`", (root / "ARCHITECTURE.md").read_text())
    assert len(steps) > 20
    for file, name in steps:
        source = (root / "src/proctor" / file).read_text()
        for part in name.split("."):
            assert re.search(rf"(def|class) {part}\b", source), f"{file}:{name}"
