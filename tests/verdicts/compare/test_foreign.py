from __future__ import annotations

import json

import pytest

from proctor.errors import UsageError
from proctor.verdicts.compare.foreign import read_file


@pytest.fixture
def saved(tmp_path):
    def save(document, name="result.json"):
        path = tmp_path / name
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return path

    return save


def test_pyperf_gives_one_sample_per_process_because_its_values_are_not_independent(saved):
    found = read_file(
        saved(
            {
                "version": "1.0",
                "metadata": {"cpu_model_name": "X", "hostname": "h"},
                "benchmarks": [
                    {
                        "metadata": {"name": "sort", "unit": "second"},
                        "runs": [
                            {"metadata": {"python_version": "3.11.7"}, "warmups": [[1, 9.0]]},
                            {"values": [1.0, 2.0, 3.0]},
                            {"values": [2.0, 2.5, 9.0]},
                        ],
                    },
                    {"runs": [{"values": [1.0, 1.5]}]},
                    {"metadata": {"name": "broken"}, "runs": []},
                ],
            }
        )
    )
    assert found.source == "pyperf"
    assert [point.name for point in found.points] == ["sort", "benchmark 2", "broken"]
    assert found.points[0].samples == {"duration_s": (2.0, 2.5)}
    assert found.points[1].samples == {"duration_s": (1.0, 1.5)}
    assert found.points[2].failed == "no result"
    assert found.facts["machine"] == {"host": "h", "cpu": "X"}
    assert found.facts["python"] == {"version": "3.11.7"}


def test_pytest_benchmark_with_and_without_saved_rounds(saved):
    found = read_file(
        saved(
            {
                "machine_info": {"node": "h", "cpu": {"brand_raw": "X"}, "python_version": "3.11.7"},
                "benchmarks": [
                    {"fullname": "t.py::a", "stats": {"data": [0.1, 0.2], "median": 0.15}},
                    {"name": "b", "stats": {"median": 0.3}},
                    {"name": "b", "stats": {"median": 0.4}},
                ],
            }
        )
    )
    assert found.source == "pytest-benchmark"
    assert [point.name for point in found.points] == ["t.py::a", "b", "b #2"]
    assert found.points[0].samples["duration_s"] == (0.1, 0.2)
    assert found.points[1].samples["duration_s"] == (0.3,)
    assert found.facts["machine"]["host"] == "h"


def test_hyperfine_commands_that_failed_are_failed_points(saved):
    found = read_file(
        saved(
            {
                "results": [
                    {
                        "command": "sort a",
                        "times": [1.0, 1.1],
                        "exit_codes": [0, 0],
                        "parameters": {"n": "1"},
                    },
                    {"command": "sort b", "times": [1.0, 1.1], "exit_codes": [0, 3]},
                    {"command": "sort c", "median": 2.0},
                ]
            }
        )
    )
    assert found.source == "hyperfine"
    assert found.points[0].params == {"n": "1"}
    assert found.points[1].failed == "exit code 3 in 1 of 2 runs"
    assert found.points[1].samples == {}
    assert found.points[2].samples["duration_s"] == (2.0,)


def test_asv_columns_are_read_over_all_parameter_combinations(saved):
    text = json.dumps(
        {
            "version": 2,
            "commit_hash": "abc",
            "params": {"machine": "h", "cpu": "X", "python": "3.11"},
            "requirements": {"numpy": "2"},
            "result_columns": ["result", "params", "version", "stats_ci_99_a", "samples"],
            "results": {
                "s.time_sort": [
                    [1.0, None, 3.0, 4.0],
                    [["1", "2"], ["'x'", "'y'"]],
                    "v",
                    [0.0],
                    [[1.0, 1.2]],
                ],
                "s.peakmem_sort": [[5000.0], []],
                "s.track_size": [[7], []],
                "s.mem_thing": {"result": [8], "params": []},
                "s.time_old": 0.25,
            },
        }
    ).replace("[0.0]", "[-Infinity]")
    found = read_file(saved(text))
    by_name = {point.name: point for point in found.points}
    assert by_name["s.time_sort(1, 'x')"].samples == {"duration_s": (1.0, 1.2)}
    assert by_name["s.time_sort(1, 'y')"].failed == "no result"
    assert by_name["s.time_sort(2, 'y')"].samples == {"duration_s": (4.0,)}
    assert by_name["s.peakmem_sort"].samples == {"peak_bytes": (5000.0,)}
    assert by_name["s.track_size"].samples == {"value": (7.0,)}
    assert by_name["s.mem_thing"].samples == {"size_bytes": (8.0,)}
    assert by_name["s.time_old"].samples == {"duration_s": (0.25,)}
    assert found.metric == "duration_s"
    assert found.facts["packages"] == {"numpy": "2"}


def test_a_run_result_is_one_point_with_every_metric(saved):
    found = read_file(
        saved(
            {
                "name": "sorting",
                "run_id": "r",
                "experiment": "sort",
                "parameters": {"n": 10},
                "status": "success",
                "iteration_metrics": [{"duration_s": 1.0, "label": "x"}, {"duration_s": 2.0, "n": 3}],
                "environment": {"hostname": "h"},
            }
        )
    )
    (point,) = found.points
    assert point.name == "sort(n=10)"
    assert point.samples == {"duration_s": (1.0, 2.0), "n": (3.0,)}
    assert found.metrics == ("duration_s", "n")


def test_a_run_result_without_rows_falls_back_to_its_aggregates(saved):
    found = read_file(
        saved({"run_id": "r", "iteration_metrics": [], "metrics": {"duration_s": {"p50": 2.0}, "bytes": 7}})
    )
    assert found.points[0].samples == {"duration_s": (2.0,), "bytes": (7.0,)}


def test_a_failed_run_result_is_a_failed_point(saved):
    found = read_file(saved({"run_id": "r", "status": "failed", "iteration_metrics": [{"duration_s": 1.0}]}))
    assert found.points[0].failed == "failed"
    assert found.points[0].samples == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("not json", "not valid JSON"),
        ("[1, 2]", "not a Proctor RunResult, pyperf"),
        ("{}", "not a Proctor RunResult, pyperf"),
        ('{"benchmarks": [1, "x", null]}', "not a Proctor RunResult, pyperf"),
        ('{"benchmarks": []}', "not a Proctor RunResult, pyperf"),
        ('{"commit_hash": "x", "results": {}}', "without benchmarks"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}", "not valid JSON"),
    ],
)
def test_files_that_are_something_else_are_refused_in_one_sentence(saved, text, words):
    with pytest.raises(UsageError, match=words):
        read_file(saved(text))


def test_a_file_that_cannot_be_read_or_is_too_large_is_refused(saved, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="cannot be read"):
        read_file(tmp_path / "missing.json")
    monkeypatch.setattr("proctor.verdicts.compare.foreign.MAX_BYTES", 3)
    with pytest.raises(UsageError, match="larger than"):
        read_file(saved({"results": []}))


def test_values_that_are_no_finite_numbers_are_no_samples(saved):
    found = read_file(
        saved(
            '{"results": [{"command": "a", "times": [1.0, "2", null, true, NaN, Infinity, 3.0]},'
            ' {"command": "b", "times": {"x": 1}}, 7]}'
        )
    )
    assert found.points[0].samples["duration_s"] == (1.0, 3.0)
    assert found.points[1].failed == "no result"
