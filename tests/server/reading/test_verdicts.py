from __future__ import annotations

from tests.server.reading.conftest import FIRST, LIVE, SECOND


def test_two_runs_are_compared(reading):
    found = reading.get("/api/compare", a=SECOND, b=LIVE)
    assert found["kind"] == "compare"
    assert found["runs"] == [SECOND, LIVE]
    assert found["comparison"]["verdict"]
    assert (found["comparison"]["changed"], found["comparison"]["with_changed"]) == ([], False)
    asked = reading.get("/api/compare", a=SECOND, b=LIVE, changed_tasks=True)
    assert asked["comparison"]["with_changed"] is True
    assert reading.ours.get("/api/compare", params={"a": FIRST, "b": "nothing"}).status_code == 404
    assert reading.ours.get("/api/compare", params={"a": FIRST, "b": "/etc"}).status_code == 404


def test_a_series_has_a_history(reading):
    assert [(each["name"], each["runs"]) for each in reading.get("/api/series")["items"]] == [
        ("going", 1), ("study", 2),
    ]  # fmt: skip
    found = reading.get("/api/history", series="study")
    assert [each["id"] for each in found["history"]["runs"]] == [FIRST, SECOND]
    wrong = reading.ours.get("/api/history", params={"series": "study", "metric": "colour"})
    assert (wrong.status_code, wrong.json()["code"]) == (400, "bad_request")


def test_a_leaderboard_has_places_with_ties(reading):
    found = reading.get("/api/leaderboard", run=[FIRST, SECOND])
    labels = [each["label"] for each in found["board"]["standings"]]
    assert labels == [f"oracle (study, {SECOND})", f"oracle (study, {FIRST})", "nop"]
    assert found["board"]["standings"][0]["place"].startswith("1")
    assert len(found["board"]["pairs"]) == 3
    rows = found["sections"][0]["blocks"][0]["rows"]
    assert [row[1]["href"] for row in rows] == [f"/runs/{each}" for each in (SECOND, FIRST, FIRST)]
    assert "left out" in " ".join(found["warnings"])


def test_experiments_and_stored_tasks_are_listed(reading):
    assert "memory_db" in [each["slug"] for each in reading.get("/api/experiments")["items"]]
    assert reading.get("/api/stored-tasks")["items"] == []
    assert reading.get("/api/certificates")["items"] == []
    wrong = reading.ours.get("/api/certificates", params={"run": FIRST, "kind": "vet"})
    assert wrong.status_code == 400


def test_costs_are_summed_in_any_way(reading):
    for by in ("day", "model", "agent", "run", "task"):
        assert reading.get("/api/costs", by=by)["sum"]["calls"] == 0
    assert reading.ours.get("/api/costs", params={"by": "moon"}).status_code == 422
