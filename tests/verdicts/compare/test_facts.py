from __future__ import annotations

from proctor.trial.environment import capture_environment
from proctor.verdicts.compare.facts import differences, gather, run_facts, same_machine


def test_facts_are_found_under_the_names_that_each_tool_uses():
    ours = gather({"cpu_model": "X", "cores": 8, "python": {"version": "3.11.7"}})
    pyperf = gather({"cpu_model_name": "X", "cpu_count": 8, "python_version": "3.11.7"})
    pytest_benchmark = gather({"cpu": {"brand_raw": "X", "count": 8}, "python_version": "3.11.7"})
    asv = gather({"cpu": "X", "num_cpu": "8", "python": "3.11.7"})
    assert ours == pyperf == pytest_benchmark == asv


def test_every_group_that_differs_is_named_with_both_values():
    a = gather({"hostname": "h1", "python_version": "3.11", "packages": {"numpy": "1", "old": "1"}})
    b = gather({"hostname": "h2", "python_version": "3.12", "packages": {"numpy": "2", "new": "1"}})
    found = differences(a, b)
    assert found[0] == "machine differs: host h1 → h2"
    assert found[1] == "python differs: version 3.11 → 3.12"
    assert "numpy 1 → 2" in found[2]
    assert "old 1 → absent" in found[2]


def test_equal_sides_differ_in_nothing_and_silence_is_said():
    facts = gather({"hostname": "h", "python_version": "3.11"})
    assert differences(facts, facts) == []
    assert differences({}, {}) == []
    assert "B has no record" in differences(facts, {})[0]


def test_many_differences_are_cut_short():
    a = gather({"packages": {f"p{at}": "1" for at in range(20)}})
    b = gather({"packages": {f"p{at}": "2" for at in range(20)}})
    assert "and 14 more" in differences(a, b)[0]


def test_a_run_carries_how_it_measured_and_its_code(run):
    facts = run_facts(run([({}, [1.0])]).info)
    assert facts["spec"] == {"parallel": "1", "sort.gc": "disabled"}
    assert facts["code"] == {"commit": "abc with local changes"}
    assert facts["packages"] == {"numpy": "2.1.0"}


def test_code_is_meant_to_differ_and_draws_no_warning(run):
    one, two = (run([({}, [1.0])]).info for _ in range(2))
    facts = {**run_facts(two), "code": {"commit": "other"}}
    assert differences(run_facts(one), facts) == []


def test_machines_are_the_same_unless_a_known_fact_differs():
    assert same_machine(gather({"hostname": "h"}), gather({"hostname": "h", "cores": 3}))
    assert not same_machine(gather({"hostname": "h"}), gather({"hostname": "g"}))


def test_hostile_environments_do_no_harm():
    deep: dict[str, object] = {}
    for _ in range(50):
        deep = {"x": deep}
    assert gather({"a": deep, "packages": "none", "hostname": None, "cores": [8]}) == {}


def test_the_environment_that_a_run_records_gives_every_group():
    facts = gather(capture_environment())
    assert {"host", "cpu", "cores", "cores allowed", "memory", "system"} <= facts["machine"].keys()
    assert {"version", "implementation", "compiler"} == facts["python"].keys()
    assert "numpy" in facts["packages"]
