"""The description of the API is complete and true; health and metrics answer."""

from __future__ import annotations

import re

import pytest
from tests.server import tasks

from proctor.server.app import create_app
from proctor.server.problem import CODES
from proctor.server.reference.examples import EXAMPLES
from proctor.server.reference.openapi import schema_of
from proctor.settings import Settings


@pytest.fixture(scope="module")
def spec():
    return create_app(Settings()).openapi()


def test_every_route_says_what_it_does_and_what_it_needs(spec):
    for path, item in spec["paths"].items():
        for method, operation in item.items():
            name = f"{method.upper()} {path}"
            assert operation["summary"], name
            assert operation["description"], name
            assert "x-scope" in operation, name
            assert (
                "200" in operation["responses"]
                or {"201", "202", "204", "303"} & operation["responses"].keys()
            )


def test_every_example_is_of_a_route(spec):
    names = {f"{method.upper()} {path}" for path, item in spec["paths"].items() for method in item}
    assert set(EXAMPLES) <= names


def test_the_problems_of_the_table_are_those_of_the_code():
    assert all(re.fullmatch(r"[a-z_]+", code) for code in CODES)
    assert all(title.endswith(".") for _, title in CODES.values())


def test_answers_are_as_their_examples_say(one_server):
    from jsonschema import validate

    up = tasks.upload(one_server.client, agent="oracle", num_runs=1)
    run = one_server.client.post("/api/runs", json={"spec": tasks.spec(up["id"]), "start": False}).json()
    assert run["id"]
    known = {"task": up["id"], "upload": up["id"], "rid": f"{up['id']}-1", "run": run["id"]}
    known["project"] = "default"
    for name, example in EXAMPLES.items():
        method, path = name.split()
        if method != "GET":
            continue
        where = re.sub(r"\{([^}]+)\}", lambda found: known.get(found[1], "0"), path)
        answer = one_server.client.get(where)
        assert answer.status_code in {200, 503}, (name, answer.text)
        validate(answer.json(), schema_of(example))


def test_the_page_of_the_api_asks_no_other_host(one_server):
    page = one_server.client.get("/docs")
    assert page.status_code == 200
    assert "GET" in page.text
    assert all(each.startswith("/") for each in re.findall(r'(?:src|href)="([^"]*)"', page.text))
    assert "<script" not in page.text
    assert one_server.client.get("/docs/style.css").headers["content-type"].startswith("text/css")
    assert one_server.client.get("/openapi.json").json()["paths"]


def test_health_and_metrics_answer(one_server):
    assert one_server.client.get("/livez").json() == {"status": "ok"}
    assert one_server.client.get("/health").json()["store"] == "ok"
    text = one_server.client.get("/metrics").text
    for name in (
        *("proctor_queue_depth", "proctor_queue_age_seconds", "proctor_trials_running", "proctor_workers"),
        *("proctor_model_tokens_total", "proctor_model_cost_usd_total", "proctor_engine_up"),
        *("proctor_http_request_seconds_count", "proctor_demand_trials", "proctor_demand_oldest_seconds"),
    ):
        assert re.search(rf"^{name} \S+$", text, re.MULTILINE), name
    assert 'proctor_http_requests_total{method="GET",route="/livez",status="200"}' in text


def test_a_path_that_does_not_exist_is_a_problem_too(one_server):
    answer = one_server.client.get("/api/nothing")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert one_server.client.put("/api/runs").json()["code"] == "method_not_allowed"
