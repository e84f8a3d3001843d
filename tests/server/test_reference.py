"""The description of the API is complete and true; health and metrics answer."""

from __future__ import annotations

import re

import pytest
from tests.browser import store
from tests.server import tasks
from tests.server.conftest import running

from proctor.server.app import create_app
from proctor.server.problem import CODES
from proctor.server.reference.example import plain, schema_of
from proctor.server.reference.examples import EXAMPLES
from proctor.server.reference.results import RESULTS
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


def test_every_answer_has_a_schema_and_an_example(spec):
    for path, item in spec["paths"].items():
        for method, operation in item.items():
            for status, response in operation["responses"].items():
                content = response.get("content", {}).get("application/json")
                if content is not None:
                    assert content["schema"], (method, path, status)
                    assert content["example"], (method, path, status)


def test_every_operation_has_a_name_that_a_generated_client_can_use(spec):
    names = [each["operationId"] for item in spec["paths"].values() for each in item.values()]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[a-z]+(_[a-z]+)+", name) for name in names), names


def test_every_example_is_as_its_schema_says():
    from jsonschema import validate

    for example in EXAMPLES.values():
        validate(plain(example), schema_of(example))


def test_the_problems_of_the_table_are_those_of_the_code():
    assert all(re.fullmatch(r"[a-z_]+", code) for code in CODES)
    assert all(title.endswith(".") for _, title in CODES.values())


NO_SUCH = {"GET /api/runs/{run}/secrets", "GET /api/schedules/{schedule}", "GET /api/timings/{name}"}
"""What the servers of these tests do not have."""
JUDGED = {"GET /api/runs/{run}/verdict", "GET /api/runs/{run}/gate"}
ASKED = {
    "GET /api/trials/{run}/{index}/beside": {"other": str(store.OTHER)},
    "GET /api/trials/{run}/{index}/logs/{name}/search": {"q": "a"},
    "GET /api/compare": {"a": store.NIGHTS[0], "b": store.NIGHTS[1]},
    "GET /api/history": {"series": "nightly"},
    "GET /api/leaderboard": {"run": store.COMPARISON},
}


def held_to_its_example(client, name: str, known: dict[str, str]) -> None:
    from jsonschema import validate

    where = re.sub(r"\{([^}]+)\}", lambda found: known.get(found[1], "0"), name.split()[1])
    answer = client.get(where, params=ASKED.get(name))
    assert answer.status_code in {200, 503}, (name, answer.text)
    validate(answer.json(), schema_of(EXAMPLES[name]))


def test_answers_are_as_their_examples_say(one_server):
    up = tasks.upload(one_server.client, agent="oracle", num_runs=1)
    run = one_server.client.post("/api/runs", json={"spec": tasks.spec(up["id"]), "start": False}).json()
    known = {"task": up["id"], "upload": up["id"], "rid": f"{up['id']}-1", "run": run["id"]}
    known["project"] = "default"
    for name in EXAMPLES:
        if name.startswith("GET") and "/trials/" not in name and name not in {*NO_SUCH, *JUDGED, *ASKED}:
            held_to_its_example(one_server.client, name, known)


def test_answers_about_results_are_as_their_examples_say(tmp_path):
    store.fill(tmp_path / ".proctor", many_trials=20, many_steps=20)
    with running(tmp_path) as found:
        for run in (store.TALK, store.COMPARISON, store.SWEEP):
            known = {"run": run, "index": "0", "name": "agent.txt"}
            for name in RESULTS:
                of_trial = "/trials/" in name
                if (
                    name.startswith("GET")
                    and name not in {*NO_SUCH, *JUDGED}
                    and (run == store.TALK or not of_trial)
                ):
                    held_to_its_example(found.client, name, known)


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
    assert 'proctor_outcomes_total{outcome="worker_lost"} 0' in text, "or its first increase is not seen"


def test_a_path_that_does_not_exist_is_a_problem_too(one_server):
    answer = one_server.client.get("/api/nothing")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert one_server.client.put("/api/runs").json()["code"] == "method_not_allowed"
