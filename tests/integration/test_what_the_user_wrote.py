"""Experiments measure what the user wrote."""

from __future__ import annotations

import json
import os
import textwrap
from pathlib import Path

import pytest

from proctor.cli.main import main
from proctor.runfolder.read import RunData

HEAD = "from proctor import Experiment, register_experiment, register_instrument, register_reporter\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    return tmp_path


def module(name: str, text: str) -> None:
    Path(f"mine/{name}.py").write_text(HEAD + textwrap.dedent(text))


def write(**keys: object) -> str:
    Path("s.json").write_text(json.dumps({"sources": ["mine"], **keys}))
    return "s.json"


def latest() -> RunData:
    return RunData.from_folder(max(Path(os.environ["PROCTOR_OUTPUT_DIR"]).rglob("manifest.json")).parent)


OWN = """
@register_experiment("memory_db")
class Mine(Experiment):
    def execute_once(self, context):
        return {"mine": 42}
"""


def test_an_experiment_with_a_built_in_name_wins_with_a_note(capsys):
    module("a", OWN)
    assert main(["plan", write(experiment="memory_db")]) == 0
    assert "'memory_db' is your own experiment at" in " ".join(capsys.readouterr().out.split())
    assert main(["run", "s.json"]) == 0
    assert latest().trials[0].stat("mine", "p50") == 42


def test_two_experiments_of_the_user_with_one_name_are_an_error_at_plan(capsys):
    module("a", OWN.replace("memory_db", "twice"))
    module("b", OWN.replace("memory_db", "twice"))
    for command in ("plan", "run"):
        assert main([command, write(experiment="twice")]) == 2
        error = capsys.readouterr().err
        assert "experiment 'twice' is registered twice" in error
        assert "a.py" in error
        assert "b.py" in error


def test_seeds_fit_numpy_which_is_seeded_when_it_arrives(capsys):
    module(
        "a",
        """
        @register_experiment("seeded")
        class Seeded(Experiment):
            def execute_once(self, context):
                import numpy
                numpy.random.RandomState(context.seed)
                assert context.seed < 2**32
                drawn = numpy.random.random()
                numpy.random.seed(context.seed)
                import sys
                return {"same": float(drawn == numpy.random.random()), "hooks": len(sys.meta_path)}
        """,
    )
    assert main(["run", write(experiment="seeded", params={}, seed=3)]) == 0
    assert latest().trials[0].stat("same", "p50") == 1.0


def test_a_union_with_a_list_takes_a_list_as_a_value(capsys):
    module(
        "a",
        """
        from typing import Optional, Union
        @register_experiment("sizes")
        class Sizes(Experiment):
            def __init__(self, sizes: Optional[Union[int, list[int]]] = None, n: int = 1):
                self.sizes = sizes
            def execute_once(self, context):
                return {"many": len(self.sizes)}
        """,
    )
    assert main(["plan", write(experiment="sizes", params={"sizes": [1, 2, 3], "n": [1, 2]}), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [trial["params"]["sizes"] for trial in plan["trials"]] == [[1, 2, 3]] * 2


def test_a_short_iteration_has_figures_of_psutil():
    module(
        "a",
        """
        import time
        @register_experiment("short")
        class Short(Experiment):
            def execute_once(self, context):
                end = time.perf_counter() + 0.06
                while time.perf_counter() < end:
                    pass
                return {}
        """,
    )
    spec = write(experiment="short", instrumentation=[{"name": "psutil", "max_samples": 500}, "timing"])
    assert main(["run", spec]) == 0
    record = latest().trials[0].counted
    assert record is not None
    summary = record.ledger["instruments"]["psutil"]["summary"]
    assert summary["samples"] >= 2
    assert summary["rss_bytes_peak"] > 1_000_000
    assert summary["cpu_percent_mean"] > 0
    assert summary["threads_peak"] >= 1


def test_a_custom_reporter_writes_at_the_end_and_again_when_asked(capsys):
    module(
        "a",
        OWN.replace("memory_db", "told")
        + """
@register_reporter("lines")
def lines(data, folder):
    (folder / "lines.txt").write_text(f"{len(data.trials)} trials")
""",
    )
    assert main(["run", write(experiment="told")]) == 0
    folder = max(Path(os.environ["PROCTOR_OUTPUT_DIR"]).rglob("lines.txt"))
    folder.unlink()
    from proctor.render.reporters import REPORTERS

    REPORTERS.clear()  # as in another process
    import sys

    for name in [each for each in sys.modules if each.startswith("proctor_folder_")]:
        del sys.modules[name]
    assert main(["report", "latest", "--format", "lines"]) == 0
    assert folder.read_text() == "1 trials"


def test_an_instrument_of_the_older_shape_gets_the_context():
    module(
        "a",
        OWN.replace("memory_db", "watched")
        + """
from contextlib import contextmanager
@register_instrument("older")
@contextmanager
def older(context, scale=1):
    yield {"seed_fits": float(context.seed < 2**32), "scale": scale}
""",
    )
    asked = [{"name": "older", "scale": 3}, {"name": "cprofile", "top_n": 2}]
    assert main(["run", write(experiment="watched", instrumentation=asked)]) == 0
    record = latest().trials[0].counted
    assert record is not None
    found = record.ledger["instruments"]
    assert "error" not in found["older"]
    assert len(found["cprofile"]["summary"]["functions"]) <= 2


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("failure_cout == 0", "did you mean 'failure_count'?"),
        ("outcomes.pased >= 1", "did you mean 'outcomes.passed'?"),
        ("metrics.duration_s.p955 <= 1", "'p955' is not a statistic of duration_s"),
        ("score not worse than baseline by 2pp", ""),
    ],
)
def test_a_misspelt_field_of_a_gate_is_refused_before_the_run(capsys, rule, said):
    module("a", OWN)
    for command in ("run", "plan"):
        assert main([command, write(experiment="memory_db", gates=[rule])]) == 2
        assert said in capsys.readouterr().err
    assert not list(Path(os.environ["PROCTOR_OUTPUT_DIR"]).rglob("manifest.json"))


@pytest.mark.parametrize(
    "rule",
    ["failure_count == 0", "outcomes.passed >= 1", "metrics.duration_s.p95 <= 100", "metrics.mine.p50 == 42"],
)
def test_a_field_that_will_be_there_is_accepted(rule):
    module("a", OWN)
    assert main(["run", write(experiment="memory_db", gates=[rule])]) == 0
