"""What the processes of a comparison see: one path, equal surroundings, and a layout of their own."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import sysconfig
import time
from dataclasses import replace
from pathlib import Path

import pytest

from proctor.analysis.lockstep import Rules
from proctor.engine.ab import Asked
from proctor.engine.ab_file import read, save
from proctor.engine.ab_run import Comparison, Contest, run
from proctor.model.lockstep import Pair
from proctor.model.spec import ExperimentBody, Spec
from proctor.processes import marked
from proctor.trial.lockstep.sides import SideRequest

FEW = Asked(rules=Rules(looks=(6,)), confirm=False)
EXPERIMENT = '''
import json
import os
import sys

import mylib
from proctor import Experiment, register_experiment


@register_experiment("seeing")
class Seeing(Experiment):
    """Writes down what its process sees."""

    def __init__(self, log: str, reads: str = "", starts: bool = False):
        self.log, self.reads, self.starts = log, reads, starts

    def setup(self, context):
        padding = {name for name in os.environ if name.startswith("PROCTOR_PADDING")}
        seen = {
            "side": mylib.SIDE,
            "files": [__file__, mylib.__file__, mylib.side.__code__.co_filename],
            "module": __name__,
            "cwd": os.getcwd(),
            "path": sys.path,
            "words": [len(word) for word in sys.argv],
            "prefix": sys.prefix,
            "variables": sorted(set(os.environ) - padding),
            "PYTHONPATH": os.environ.get("PYTHONPATH"),
            "hash_seed": int(os.environ["PYTHONHASHSEED"]),
            "env_bytes": sum(len(os.environ[name]) for name in padding),
            "cached": mylib.__cached__,
            "descriptors": len(os.listdir("/proc/self/fd")),
        }
        with open(self.log, "a") as file:
            file.write(json.dumps(seen) + "\\n")
        if self.reads:
            with open(os.path.join(os.path.dirname(mylib.__file__), self.reads)) as file:
                file.read()
        if self.starts:
            os.system("true")

    def execute_once(self, context):
        mylib.side()
        return {}
'''


@pytest.fixture(autouse=True)
def _few_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.trial.lockstep.measure.KEPT", 5)


def code(folder: Path, side: str = "x", *, comment: str = "") -> Path:
    (folder / "src" / "mylib").mkdir(parents=True)
    (folder / "experiments").mkdir()
    (folder / "experiments" / "seeing.py").write_text(EXPERIMENT)
    text = f"SIDE = {side!r}\n\n\ndef side():\n    return sorted(range(100))\n{comment}"
    (folder / "src" / "mylib" / "__init__.py").write_text(text)
    return folder


def contest(a: Path, b: Path, log: Path, **params: object) -> Contest:
    body = ExperimentBody(experiment="seeing", params={"log": str(log), **params})
    return Contest(
        spec=Spec(name="s", experiments=(body,), base_dir=str(a), timeout_s=30.0),
        sources=(str(a / "experiments"),),
        a=SideRequest(folder=str(a)),
        b=SideRequest(folder=str(b)),
    )


def compared(tmp_path: Path, **params: object) -> tuple[Comparison, dict[str, list[dict]]]:
    """Two folders whose names differ in length; what their processes saw, the probe of each first."""
    a, b = code(tmp_path / "a", "A"), code(tmp_path / "deep" / "a-much-longer-name", "B")
    log = tmp_path / "log"
    found = run(contest(a, b, log, **params), FEW, rng=random.Random(1))
    seen = [json.loads(line) for line in log.read_text().splitlines()]
    return found, {side: [each for each in seen if each["side"] == side] for side in "AB"}


def pairs_of(found: Comparison) -> tuple[Pair, ...]:
    return found.results[0].pairs


@pytest.mark.needs("bubblewrap")
@pytest.mark.parametrize(
    "name", ["files", "module", "cwd", "path", "words", "PYTHONPATH", "variables", "cached"]
)
def test_both_sides_see_the_same_path_words_and_variables(tmp_path, name):
    found, seen = compared(tmp_path)
    values = [each[name] for side in "AB" for each in seen[side]]
    assert len(values) == 2 + 2 * 6 + 2
    assert values == [values[0]] * len(values)
    assert {pair.paths for pair in pairs_of(found)} == {"same"}
    assert found.notes == ()


@pytest.mark.needs("bubblewrap")
def test_a_process_keeps_no_descriptor_of_its_namespace(tmp_path):
    log = tmp_path / "log"
    here = code(tmp_path / "a", "A")
    run(contest(here, here, log), FEW)
    alone = {json.loads(line)["descriptors"] for line in log.read_text().splitlines()}
    (tmp_path / "more").mkdir()
    _, seen = compared(tmp_path / "more")
    assert {each["descriptors"] for side in "AB" for each in seen[side]} <= alone


def test_every_process_of_a_pair_gets_a_layout_of_its_own_and_it_is_kept(tmp_path):
    found, seen = compared(tmp_path)
    pairs = pairs_of(found)
    for pair in pairs:
        roles = "abc" if pair.again else "ab"
        assert sorted(pair.layouts) == list(roles)
        layouts = [layout for role in roles for layout in pair.layouts[role]]
        assert len({layout.hash_seed for layout in layouts}) == 1
        assert len({layout.heap_seed for layout in layouts}) == len(roles)
    assert any(pair.again for pair in pairs)
    assert len({pair.layouts["a"][0].hash_seed for pair in pairs}) == len(pairs)
    drawn = {(layout.hash_seed, layout.env_bytes) for pair in pairs for (layout,) in pair.layouts.values()}
    probed = 1
    real = {(each["hash_seed"], each["env_bytes"]) for side in "AB" for each in seen[side][probed:]}
    assert real == drawn
    path = save(found, path=tmp_path / "saved.json", folder=tmp_path, now=0.0)
    assert [(pair.layouts, pair.paths) for pair in read(path).results[0].pairs] == [
        (pair.layouts, pair.paths) for pair in pairs
    ]


def test_without_namespaces_the_paths_have_equal_length_and_that_is_said(tmp_path, monkeypatch):
    def refuse(*_: object) -> list[int]:
        raise PermissionError("not in this container")

    monkeypatch.setattr("proctor.trial.lockstep.same_path._namespaces", refuse)
    found, seen = compared(tmp_path)
    files = {file for side in "AB" for each in seen[side] for file in each["files"]}
    assert len({(len(file), Path(file).name) for file in files}) == 2
    roots = {each["path"][-1] for each in seen["A"]} | {each["path"][-1] for each in seen["B"]}
    assert len({len(root) for root in roots}) == 1
    assert {pair.paths for pair in pairs_of(found)} == {"equal length"}
    assert any("equal length, but not at one path: not in this container" in note for note in found.notes)
    assert any("side-c" in file for file in files), "the second A has a name of its own"


def test_where_nothing_can_be_made_alike_it_is_said(tmp_path, monkeypatch):
    def refuse(*_: object, **__: object) -> list[int]:
        raise PermissionError("not here")

    monkeypatch.setattr("proctor.trial.lockstep.same_path._namespaces", refuse)
    monkeypatch.setattr(Path, "symlink_to", refuse)
    found, _ = compared(tmp_path)
    assert {pair.paths for pair in pairs_of(found)} == {"different"}
    assert any("at different paths, which by itself can change the speed" in note for note in found.notes)


def test_code_that_needs_its_own_path_is_measured_there_and_that_is_said(tmp_path):
    a, b = code(tmp_path / "a", "A"), code(tmp_path / "bb", "B")
    (tmp_path / "beside.txt").write_text("")
    found = run(contest(a, b, tmp_path / "log", reads="../../../beside.txt"), FEW)
    assert {pair.paths for pair in pairs_of(found)} == {"different"}
    assert any("does not run at a path of both sides" in note for note in found.notes)


def test_sides_with_equal_times_and_sizes_do_not_share_bytecode(tmp_path):
    a, b = code(tmp_path / "a", "A"), code(tmp_path / "b", "B")
    for folder in (a, b):
        os.utime(folder / "src" / "mylib" / "__init__.py", (1_700_000_000, 1_700_000_000))
    log = tmp_path / "log"
    run(contest(a, b, log), FEW)
    sides = [json.loads(line)["side"] for line in log.read_text().splitlines()]
    assert (sides.count("A"), sides.count("B")) == (1 + 6 + 2, 1 + 6)
    written = [path for folder in (a, b) for path in (folder / "src").rglob("__pycache__")]
    assert not written, "the sides' bytecode lies elsewhere; only the experiment was imported as ever"


@pytest.mark.needs("bubblewrap")
def test_two_environments_are_seen_at_one_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", sysconfig.get_path("purelib"))
    short, longer = tmp_path / "v", tmp_path / "another-environment"
    for folder in (short, longer):
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    here, log = code(tmp_path / "a", "A"), tmp_path / "log"
    (here / "pyproject.toml").write_text("")
    asked = contest(here, here, log)
    asked = replace(
        asked,
        a=SideRequest(folder=str(here), python=str(short)),
        b=SideRequest(folder=str(here), python=str(longer)),
    )
    found = run(asked, FEW)
    assert len({json.loads(line)["prefix"] for line in log.read_text().splitlines()}) == 1
    assert {pair.paths for pair in pairs_of(found)} == {"same"}
    assert not found.results[0].identical


def test_interpreters_that_cannot_be_moved_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", sysconfig.get_path("purelib"))
    here, log = code(tmp_path / "a", "A"), tmp_path / "log"
    link = tmp_path / "somewhere" / "else" / "python"
    link.parent.mkdir(parents=True)
    link.symlink_to(sys.executable)
    asked = replace(contest(here, here, log), b=SideRequest(folder=str(here), python=str(link)))
    found = run(asked, FEW)
    assert {pair.paths for pair in pairs_of(found)} == {"different"}
    assert any("the interpreters are at paths of" in note for note in found.notes)


def identical(tmp_path: Path, **params: object) -> Comparison:
    a, b = tmp_path / "a", tmp_path / "bbbb"
    return run(contest(a, b, tmp_path / "log", **params), FEW, rng=random.Random(1))


def test_identical_content_is_recognised_by_what_was_imported_and_said_first(tmp_path):
    code(tmp_path / "a")
    code(tmp_path / "bbbb")
    (tmp_path / "bbbb" / "unused.py").write_text("print('never')\n")
    found = identical(tmp_path)
    assert found.results[0].identical
    assert found.notes[0] == "both sides are the same code: this measures the noise"
    assert found.verdict.value not in {"slower", "faster", "small"}


def test_other_code_or_other_files_that_were_read_are_not_identical(tmp_path):
    code(tmp_path / "a")
    code(tmp_path / "bbbb")
    for side in ("a", "bbbb"):
        (tmp_path / side / "src" / "mylib" / "table.txt").write_text(side)
    assert identical(tmp_path).results[0].identical
    assert not identical(tmp_path, reads="table.txt").results[0].identical
    assert not identical(tmp_path, starts=True).results[0].identical, "what a process reads is not known"
    with (tmp_path / "bbbb" / "src" / "mylib" / "__init__.py").open("a") as file:
        file.write("# a comment\n")
    assert not identical(tmp_path).results[0].identical


def test_the_padding_of_the_heap_moves_what_is_made_after_it():
    script = """if True:
        import sys
        sys.path.insert(0, sys.argv[1])
        from layout import pad_heap
        pad_heap(int(sys.argv[2]))
        made = [[number] for number in range(3)], "x" * 3_000, {number: number for number in range(50)}
        print(*(id(each) % 4096 for each in (made[0][0], made[1], made[2])))
    """
    folder = Path(__file__).parents[2] / "src" / "proctor" / "trial" / "lockstep"

    def offsets(seed: int) -> str:
        command = [sys.executable, "-S", "-c", script, str(folder), str(seed)]
        env = {"PYTHONHASHSEED": "0"}
        return subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout

    assert len({offsets(5) for _ in range(8)}) < 4
    assert len({offsets(seed) for seed in range(8)}) == 8


@pytest.mark.needs("bubblewrap")
def test_a_killed_comparison_leaves_no_process_and_its_folder_goes_with_the_next(tmp_path, monkeypatch):
    a, b = code(tmp_path / "a", "A"), code(tmp_path / "bbb", "B")
    log, temp = tmp_path / "log", tmp_path / "temp"
    temp.mkdir()
    monkeypatch.setenv("LOCKSTEP_TEST", f"{os.getpid()}-killed")
    monkeypatch.setenv("TMPDIR", str(temp))
    spec = {"experiment": "seeing", "params": {"log": str(log)}}
    (a / "spec.json").write_text(json.dumps(spec))
    words = ["ab", str(a / "spec.json"), "--experiments", str(a / "experiments"), "--pairs", "2000"]
    words += [
        "--margin",
        "0.01%",
        "--a",
        f"path:{a}",
        "--b",
        f"path:{b}",
        "--output",
        str(tmp_path / "o.json"),
    ]
    parent = subprocess.Popen([sys.executable, "-m", "proctor.cli.main", *words], cwd=a)
    deadline = time.monotonic() + 60
    while not log.exists() or log.read_text().count("\n") < 4:
        assert parent.poll() is None
        assert time.monotonic() < deadline
    parent.kill()
    parent.wait()
    while marked(f"LOCKSTEP_TEST={os.getpid()}-killed"):
        assert time.monotonic() < deadline
    mounts = Path("/proc/self/mountinfo").read_text()
    assert str(temp) not in mounts
    (left,) = temp.iterdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    run(contest(a, b, log), FEW)
    assert not left.exists()
    assert not list(temp.iterdir())
