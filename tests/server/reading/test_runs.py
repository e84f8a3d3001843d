from __future__ import annotations

from tests.server.reading.conftest import FIRST, LIVE, OTHERS, SECOND


def test_runs_have_score_sentence_and_counts(reading):
    rows = {each["id"]: each for each in reading.get("/api/runs")["items"]}
    assert list(rows) == [LIVE, SECOND, FIRST]
    second = rows[SECOND]
    assert second["score"]["n"] == 6
    assert second["score"]["low"] < second["score"]["value"] < second["score"]["high"]
    assert second["headline"].startswith("oracle passes 83 % on 2 tasks")
    assert (second["agents"], second["project"], second["tags"]) == (["oracle"], "default", ["nightly"])
    first = rows[FIRST]
    assert first["score"] is None
    assert [each["label"] for each in first["scores"]] == ["oracle", "nop"]
    assert first["counts"]["sandbox_error"] == 1
    assert (rows[LIVE]["pending"], rows[LIVE]["gate"]) == (2, None)


def test_a_list_goes_on_from_its_cursor(reading):
    page = reading.get("/api/runs", limit=2)
    rest = reading.get("/api/runs", limit=2, cursor=page["next"])
    assert [each["id"] for each in (*page["items"], *rest["items"])] == [LIVE, SECOND, FIRST]
    assert rest["next"] is None


def test_runs_are_filtered_and_sorted_by_what_was_worked_out(reading):
    def ids(**asked):
        return [each["id"] for each in reading.get("/api/runs", **asked)["items"]]

    assert ids(agent="nop") == [FIRST]
    assert ids(q="agent:oracle status:done") == [SECOND, FIRST]
    assert ids(q="GOIN") == [LIVE]
    assert ids(tag="nightly", name="stu*", sort="created") == [FIRST, SECOND]
    assert ids(sort="-score")[0] == LIVE
    assert ids(sort="-score", limit=1, cursor="MQ") == [SECOND]  # the cursor of place 1
    assert ids(status="running", kind="task") == [LIVE]
    wrong = reading.ours.get("/api/runs", params={"sort": "colour"})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid")


def test_a_run_is_shown_whole(reading):
    run = reading.get(f"/api/runs/{FIRST}")
    assert run["warnings"] == ["mind the gap"]
    assert run["budget"]["budget_usd"] == 5.0
    assert run["errors_to_retry"] == 1
    assert run["spent"] == {"cost_usd": None, "tokens": 0, "requests": 0, "unknown_cost": 0}
    assert reading.get("/api/runs/study")["id"] == SECOND


def test_the_report_leads_to_addresses_of_the_page(reading):
    document = reading.get(f"/api/runs/{FIRST}/document")
    assert document["title"] == "study"
    blocks = [block for section in document["sections"] for block in section["blocks"]]
    chart = next(each for each in blocks if each["type"] == "chart")
    assert chart["draw"]["svg"].startswith("<svg")
    matrix = next(each for each in blocks if each["type"] == "matrix")
    assert matrix["rows"][0][1][0][0]["href"] == f"/trials/{FIRST}/0"
    assert "folder" not in document


def test_the_matrix_has_a_sign_for_every_trial(reading):
    found = reading.get(f"/api/runs/{FIRST}/matrix")
    assert [each["label"] for each in found["columns"]] == ["oracle", "nop"]
    assert [each["task"] for each in found["rows"]] == ["org/a", "org/b"]
    first = found["rows"][0]["cells"][0]
    assert [(each["i"], each["r"], each["o"], each["w"]) for each in first] == [
        (0, 0, "passed", 1.0), (1, 1, "passed", 1.0), (2, 2, "failed", 0.0),
    ]  # fmt: skip
    assert [
        each["i"] for row in found["rows"] for cell in row["cells"] for each in cell if each.get("x")
    ] == [0]
    assert [each["s"] for each in reading.get(f"/api/runs/{LIVE}/matrix")["rows"][0]["cells"][0]] == [
        "done", "pending", "pending",
    ]  # fmt: skip


def test_trials_are_filtered_sorted_and_counted(reading):
    def page(**asked):
        return reading.get(f"/api/runs/{FIRST}/trials", **asked)

    everything = page(limit=5)
    assert (everything["total"], everything["matched"], len(everything["items"])) == (12, 12, 5)
    rest = page(limit=50, cursor=everything["next"])
    assert [each["index"] for each in rest["items"]] == list(range(5, 12))
    passed = page(outcome="passed", agent="oracle", sort="-took")
    times = [each["took_s"] for each in passed["items"]]
    assert (passed["matched"], times) == (3, sorted(times, reverse=True))
    lost = page(blame="infrastructure")["items"]
    assert [(each["outcome"], each["attempts"], each["message"]) for each in lost] == [
        ("sandbox_error", 2, "no room for 2 on /dev/sda2")
    ]
    assert page(blame="provider")["matched"] == 0
    assert page(blame="agent", outcome="sandbox_error")["items"] == []
    assert page(q="ORG/B", task="org/b", state="done", limit=1)["matched"] == 6
    assert reading.ours.get(f"/api/runs/{FIRST}/trials", params={"sort": "x"}).status_code == 422


def test_errors_that_are_alike_are_one_group(reading):
    groups = reading.get(f"/api/runs/{FIRST}/errors")["groups"]
    assert [(each["outcome"], each["count"], each["blame"]) for each in groups] == [
        ("sandbox_error", 1, "infrastructure")
    ]
    assert (groups[0]["first"], groups[0]["tasks"]) == (8, ["org/a"])


def test_the_costs_of_a_run_without_models_are_unknown_not_zero(reading):
    costs = reading.get(f"/api/runs/{FIRST}/costs")
    assert (costs["total"]["cost_usd"], costs["by_model"], costs["counted_by"]) == (None, [], "agents")


def test_what_did_not_change_is_answered_with_304(reading):
    for path in (f"/api/runs/{FIRST}/matrix", "/api/runs", f"/api/trials/{FIRST}/2"):
        first = reading.ours.get(path)
        again = reading.ours.get(path, headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


def test_a_project_sees_nothing_of_another(reading):
    assert [each["id"] for each in reading.theirs.get("/api/runs").json()["items"]] == [OTHERS]
    assert reading.theirs.get("/api/runs", params={"project": "default"}).status_code == 404
    assert len(reading.admin.get("/api/runs").json()["items"]) == 4
    for path in (
        f"/api/runs/{FIRST}", f"/api/runs/{FIRST}/document", f"/api/runs/{FIRST}/matrix",
        f"/api/runs/{FIRST}/trials", f"/api/runs/{FIRST}/errors", f"/api/runs/{FIRST}/costs",
        f"/api/trials/{FIRST}/2", f"/api/trials/{FIRST}/2/transcript", f"/api/trials/{FIRST}/2/verifier",
        f"/api/trials/{FIRST}/2/files", f"/api/trials/{FIRST}/2/file?path=logs/agent.txt",
        f"/api/trials/{FIRST}/2/diff", f"/api/trials/{FIRST}/2/resources", f"/api/trials/{FIRST}/2/calls",
        f"/api/trials/{FIRST}/2/logs", f"/api/trials/{FIRST}/2/logs/agent.txt",
        f"/api/trials/{FIRST}/2/logs/agent.txt/search?q=a", f"/api/trials/{FIRST}/2/logs/agent.txt/follow",
        f"/api/events?run={FIRST}", f"/api/compare?a={FIRST}&b={OTHERS}", "/api/history?series=study",
        f"/api/certificates?run={FIRST}", f"/api/leaderboard?run={FIRST}",
    ):  # fmt: skip
        assert reading.theirs.get(path).status_code == 404, path
    for path in ("/api/series", "/api/queue", "/api/workers", "/api/costs", "/api/certificates"):
        assert "study" not in reading.theirs.get(path).text, path
    assert [each["name"] for each in reading.theirs.get("/api/series").json()["items"]] == ["secret"]
