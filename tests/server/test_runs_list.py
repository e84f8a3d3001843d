from __future__ import annotations


def test_an_empty_store_lists_no_runs(server):
    answer = server.client.get("/api/runs")
    assert answer.status_code == 200
    assert answer.json() == {"items": [], "next": None}


def test_an_unknown_parameter_is_refused_with_the_names_that_exist(server):
    answer = server.client.get("/api/runs", params={"stauts": "done"})
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "unknown_parameter"
    assert "status" in answer.json()["detail"]


def test_what_did_not_change_is_not_sent_again(server):
    first = server.client.get("/api/runs")
    again = server.client.get("/api/runs", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
