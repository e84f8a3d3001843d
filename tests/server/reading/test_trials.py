from __future__ import annotations

import time

import psutil
from tests.server.reading.conftest import (
    FIRST,
    HOSTILE,
    HUGE,
    HUGE_END,
    LIVE,
    LONG,
    OTHERS,
    SECOND,
)


def test_a_trial_says_why_it_failed_and_what_is_next(reading):
    found = reading.get(f"/api/trials/{FIRST}/2")
    assert found["sentence"] == "test_two failed: expected 4, found 5"
    assert (found["previous"], found["next"], found["next_failure"]) == (1, 3, 4)
    assert found["run"]["name"] == "study"
    assert [each["counts"] for each in found["attempts"]] == [True]
    assert "digest" not in found["attempts"][0]["artifacts"][0]
    assert reading.get(f"/api/trials/{FIRST}/0")["sentence"] == "Passed, reward 1."


def test_every_attempt_is_shown_and_one_counts(reading):
    found = reading.get(f"/api/trials/{FIRST}/8")
    assert [(each["number"], each["counts"]) for each in found["attempts"]] == [(1, False), (2, True)]
    assert found["sentence"] == "no room for 2 on /dev/sda2"
    assert reading.get(f"/api/trials/{LIVE}/1")["sentence"] == "Waits for a worker."


def test_what_does_not_exist_is_404(reading):
    for path in ("999", "-1", f"{1 << 40}"):
        assert reading.ours.get(f"/api/trials/{FIRST}/{path}").status_code == 404
    assert reading.ours.get(f"/api/trials/{FIRST}/2/files", params={"attempt": 9}).status_code == 404
    assert reading.ours.get("/api/trials/nothing/2").status_code == 404


def test_a_transcript_comes_in_pages_with_long_texts_cut(reading):
    base = f"/api/trials/{FIRST}/2/transcript"
    page = reading.get(base, limit=3)
    assert (page["total"], [each["id"] for each in page["steps"]]) == (1000, [1, 2, 3])
    assert page["steps"][0]["at"] == 1767225600
    assert page["steps"][1]["tool_calls"][0]["arguments"] == {"command": "ls"}
    cut = page["steps"][2]["observation"]["results"][0]["content"]
    assert (cut["cut"], len(cut["text"])) == (24_000, 16_003)
    assert [each["id"] for each in reading.get(base, **{"from": 998})["steps"]] == [999, 1000]
    whole = reading.get(base, step=3, full=1)["steps"][0]
    assert whole["observation"]["results"][0]["content"] == LONG
    assert reading.ours.get(base, params={"step": 2000, "full": 1}).status_code == 404
    assert reading.get(f"/api/trials/{FIRST}/0/transcript")["total"] == 0


def test_the_verifier_shows_tests_rewards_and_output(reading):
    found = reading.get(f"/api/trials/{FIRST}/2/verifier")
    assert found["counts"] == {"passed": 1, "failed": 1}
    assert found["tests"][0]["duration_s"] == 0.012
    assert found["output"] == "1 failed\n"
    assert found["rewards"] == {"reward": 0.0}


def test_what_an_agent_wrote_is_never_a_page(reading):
    base = f"/api/trials/{FIRST}/2"
    names = [each["path"] for each in reading.get(f"{base}/files")["files"]]
    assert "artifacts/files/evil.html" in names
    answer = reading.ours.get(f"{base}/file", params={"path": "artifacts/files/evil.html"})
    assert answer.text == HOSTILE
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    for path in ("../../../etc/passwd", "/etc/passwd", "logs/../trajectory.json", "", "logs"):
        assert reading.ours.get(f"{base}/file", params={"path": path}).status_code == 404


def test_the_diff_the_resources_and_the_calls(reading):
    base = f"/api/trials/{FIRST}/2"
    assert "+++ b/x" in reading.get(f"{base}/diff")["diff"]
    used = reading.get(f"{base}/resources")
    assert used["ledger"]["backend"] == "bubblewrap"
    series = {each["name"]: (each["at"], each["values"], each["limit"]) for each in used["series"]}
    assert series == {
        "memory_bytes": ([2.0, 3.0, 5.0], [10, 20, 15], 100),
        "cpu_cores": ([2.0, 3.0, 5.0], [0.5, 2.0, None], 2.0),
    }
    assert used["events"] == [{"at": 3.0, "kind": "oom", "text": "1 process killed for memory"}]
    assert reading.get(f"{base}/calls") == {"calls": [], "total": 0}


def test_a_log_is_read_by_range_from_its_end_and_searched(reading):
    base = f"/api/trials/{FIRST}/2/logs"
    logs = reading.get(base)["logs"]
    assert [each["name"] for each in logs] == ["agent.txt", "eval.log"]
    size = logs[0]["size"]
    part = reading.ours.get(f"{base}/agent.txt", params={"offset": 7, "length": 6})
    assert (part.text, part.headers["x-log-size"]) == ("line 1", str(size))
    assert reading.ours.get(f"{base}/agent.txt", params={"tail": 4}).text == "end\n"
    ranged = reading.ours.get(f"{base}/agent.txt", headers={"Range": "bytes=-4"})
    assert (ranged.status_code, ranged.text) == (206, "end\n")
    assert ranged.headers["content-range"] == f"bytes {size - 4}-{size - 1}/{size}"
    middle = reading.ours.get(f"{base}/agent.txt", headers={"Range": "bytes=0-5"})
    assert middle.text == "line 0"
    assert reading.ours.get(f"{base}/agent.txt", headers={"Range": f"bytes={size}-"}).status_code == 416
    found = reading.get(f"{base}/agent.txt/search", q="needle")
    assert [(each["line"], each["text"]) for each in found["matches"]] == [(50_001, "the Needle is here")]
    assert found["next"] is None
    assert reading.ours.get(f"{base}/nothing.txt").status_code == 404


def test_a_log_of_a_gigabyte_is_never_read_whole(reading):
    server = psutil.Process(reading.pid)
    base = f"/api/trials/{FIRST}/1/logs/huge.txt"
    before = server.memory_info().rss
    assert reading.ours.get(base, params={"length": 10}).text == "first line"
    end = reading.ours.get(base, params={"tail": len(HUGE_END)})
    assert (end.content, end.headers["x-log-size"]) == (HUGE_END, str(HUGE))
    middle = reading.ours.get(base, headers={"Range": f"bytes={HUGE // 2}-{HUGE // 2 + 3}"})
    assert (middle.status_code, middle.content) == (206, b"\0" * 4)
    (match,) = reading.get(f"{base}/search", q="word", **{"from": f"{HUGE - (8 << 20)}.7"})["matches"]
    assert (match["offset"], match["text"]) == (HUGE - len(HUGE_END) + 1, "the last Word")
    assert server.memory_info().rss - before < 100 << 20


def test_a_search_goes_on_where_it_stopped(reading):
    base = f"/api/trials/{FIRST}/2/logs/agent.txt/search"
    first = reading.get(base, q="line 1")
    assert len(first["matches"]) == 200
    second = reading.get(base, q="line 1", **{"from": first["next"]})
    lines = [each["line"] for each in (*first["matches"], *second["matches"])]
    assert lines == sorted(set(lines))
    assert len(lines) == 400
    offset = second["matches"][-1]["offset"]
    at = reading.ours.get(base.removesuffix("/search"), params={"offset": offset, "length": 6})
    assert at.text == "line 1"
    assert reading.ours.get(base, params={"q": "x", "from": "soon"}).status_code == 422


def test_a_log_that_grows_is_followed_to_its_end(reading):
    """A trial that runs: its log is in the run's folder, in two parts where it is long."""
    logs = reading.home / "data" / LIVE / "trials" / "org__a" / "1" / "logs"
    logs.mkdir(parents=True)
    (logs / "agent.txt").write_bytes(b"head\n")
    (logs / "agent.txt.1").write_bytes(b"tail\n")
    (logs / "link.txt").symlink_to("/etc/passwd")
    steps = b'{"source": "agent", "message": "one"}\n{"source": "agent", "message": "two"}\n{"source'
    (logs.parent / "trajectory.jsonl").write_bytes(steps)
    with reading.store as store, store._db.write() as tx:
        tx.execute(
            "UPDATE trials SET state = 'running', worker = 'w', expires_at = :at, started_at = 1, fence = 1 "
            "WHERE run_id = :run AND idx = 1",
            {"run": LIVE, "at": time.time() + 600},
        )
    base = f"/api/trials/{LIVE}/1"
    detail = reading.get(base)
    assert (detail["live"]["phase"], detail["live"]["attempt"]) == ("queue", 1)
    told = reading.get(f"{base}/transcript")
    assert (told["live"], [each["message"] for each in told["steps"]]) == (True, ["one", "two"])
    assert reading.get(f"{base}/logs")["logs"] == [{"name": "agent.txt", "size": 10, "live": True}]
    assert reading.ours.get(f"{base}/logs/agent.txt", params={"offset": 3, "length": 4}).text == "d\nta"
    assert reading.ours.get(f"{base}/file", params={"path": "logs/link.txt"}).status_code == 404
    assert reading.get("/api/workers")["items"][0]["name"] == "w"
    waiting = reading.get("/api/queue")["items"][0]
    assert (waiting["run"], waiting["pending"], waiting["running"]) == (LIVE, 1, 1)
    assert "proctor resume" in waiting["reason"]
    assert reading.get("/api/queue?slots=2")["demand"]["wanted_workers"] == 1
    with reading.ours.stream("GET", f"{base}/logs/agent.txt/follow") as answer:
        lines = answer.iter_lines()
        assert next(line for line in lines if line) == 'data: {"text":"head\\ntail\\n"}'
        with (logs / "agent.txt.1").open("ab") as log:
            log.write(b"more\n")
        assert next(line for line in lines if line) == 'data: {"text":"more\\n"}'
        with reading.store as store, store._db.write() as tx:
            tx.execute(
                "UPDATE trials SET state = 'pending', worker = NULL, expires_at = NULL "
                "WHERE run_id = :run AND idx = 1",
                {"run": LIVE},
            )
        assert "event: end" in lines
    (logs / "link.txt").unlink()


def test_two_trials_stand_side_by_side(reading):
    found = reading.get(f"/api/trials/{FIRST}/2/beside", other=2)
    assert found["sentence"] == "Both do the same in all 1000 steps; their words may differ."
    assert found["spans"] == [
        {"same": True, "a": {"from": 1, "count": 1000}, "b": {"from": 1, "count": 1000}}
    ]
    other = reading.get(f"/api/trials/{FIRST}/2/beside", other=1)
    assert (other["a"]["name"], other["b"]["name"]) == ("#3", "#2")
    assert other["sentence"] == "#2 has no transcript."
    apart = reading.get(f"/api/trials/{FIRST}/2/beside", other=0, other_run=SECOND)
    assert (apart["a"]["name"], apart["b"]["run"]) == ("A", SECOND)


def test_a_trial_of_another_project_stands_beside_nothing(reading):
    asked = {"other": 0, "other_run": OTHERS}
    assert reading.ours.get(f"/api/trials/{FIRST}/2/beside", params=asked).status_code == 404
    assert reading.ours.get(f"/api/trials/{FIRST}/2/beside", params={"other": 999}).status_code == 404
