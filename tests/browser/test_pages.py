"""Each page's main path, in a real browser against a real server."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from tests.browser.store import COMPARISON, FAILING, LONG, NIGHTS, SWEEP, TALK

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route
    from tests.server.conftest import Serving

pytestmark = pytest.mark.needs("chromium", "web-page")


def expect(found: object):
    from playwright.sync_api import expect as expecting

    expecting.set_options(timeout=15_000)
    return expecting(found)


def test_the_list_of_runs_leads_to_a_run_and_back(page: Page):
    page.goto("/")
    expect(page).to_have_url(re.compile("/runs$"))
    expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
    page.get_by_role("link", name="model_comparison").first.click()
    expect(page.get_by_role("heading", name=re.compile("model_comparison"))).to_be_visible()
    expect(page.get_by_role("heading", name="Score", exact=True)).to_be_visible()
    page.go_back()
    expect(page.get_by_role("link", name="nightly").first).to_be_visible()


def test_a_filter_of_runs_is_in_the_address_and_survives_a_reload(page: Page):
    page.goto("/runs")
    page.get_by_label("Filter runs").fill("name:nightly")
    expect(page).to_have_url(re.compile("q=name:nightly"))
    expect(page.get_by_role("link", name="model_comparison")).to_have_count(0)
    page.reload()
    expect(page.get_by_label("Filter runs")).to_have_value("name:nightly")
    expect(page.locator("tr.rr")).to_have_count(len(NIGHTS))
    page.get_by_label("Filter runs").fill("nothing-like-this")
    expect(page.get_by_text("No run matches this filter.")).to_be_visible()


def test_two_marked_runs_are_compared_by_a_key(page: Page):
    page.goto("/runs?q=name:nightly")
    for row in (0, 1):
        page.locator("tr.rr input[type=checkbox]").nth(row).check()
    page.locator("h1").click()
    page.keyboard.press("c")
    expect(page).to_have_url(re.compile("/compare"))
    expect(page.get_by_role("heading", name=re.compile("B against A"))).to_be_visible()
    expect(page.locator(".forest .mark").first).to_be_visible()
    assert page.locator(".forest .mark").first.evaluate("e => e.style.left.endsWith('%')")


def test_the_matrix_shows_every_outcome_and_is_walked_by_arrows(page: Page):
    page.goto(f"/runs/{COMPARISON}/matrix")
    expect(page.locator("table.mx a.c.p").first).to_be_visible()
    assert page.locator("table.mx a.c").count() == 180
    assert page.locator("table.mx a.c.x[data-l=P]").count() == 3
    first = page.locator("table.mx a.c").first
    first.focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.title") != first.get_attribute("title")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/trials/{COMPARISON}/"))


def test_trials_are_filtered_by_outcome_and_sorted_by_time(page: Page):
    page.goto(f"/runs/{COMPARISON}/trials")
    page.get_by_role("button", name=re.compile("^provider error")).click()
    expect(page).to_have_url(re.compile("outcome=provider_error"))
    expect(page.locator("table.trials tbody tr")).to_have_count(3)
    page.get_by_role("button", name="time", exact=True).click()
    expect(page.locator("th[aria-sort=descending]")).to_have_text(re.compile("time"))


def test_a_long_table_keeps_few_rows_in_the_document(page: Page):
    page.goto(f"/runs/{LONG}/trials")
    expect(page.locator("table.trials tbody tr").first).to_be_visible()
    assert page.locator("table.trials tbody tr").count() < 120
    for _ in range(12):
        page.mouse.wheel(0, 20_000)
        page.wait_for_timeout(60)
    expect(page.get_by_role("link", name=re.compile("task-0[1-9]")).first).to_be_visible()
    assert page.locator("table.trials tbody tr").count() < 120


def test_errors_are_grouped_by_their_cause(page: Page):
    page.goto(f"/runs/{COMPARISON}/errors")
    expect(page.get_by_text("not in the score").first).to_be_visible()
    expect(page.locator("article.eg").first).to_contain_text("the sandbox <did> not start")


@pytest.mark.parametrize("tab", ["performance", "cost", "spec"])
def test_the_other_parts_of_a_run_show_something(page: Page, tab: str):
    page.goto(f"/runs/{COMPARISON}/{tab}")
    expect(page.locator(".tabs [aria-current]")).to_have_text(re.compile(tab, re.IGNORECASE))
    expect(page.locator(".tabbody")).to_contain_text(re.compile(r"\w{4}"))


def test_a_run_that_stopped_says_why(page: Page):
    def stopped(route: Route) -> None:
        found = route.fetch()
        route.fulfill(json={**found.json(), "status": "interrupted", "failure": "the budget is spent"})

    page.route(f"**/api/runs/{COMPARISON}", stopped)
    page.goto(f"/runs/{COMPARISON}")
    expect(page.locator(".notice", has_text="The run stopped")).to_contain_text("The budget is spent.")


def test_a_phone_shows_where_a_run_ran_and_whose_trial_is_whose(page: Page):
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto(f"/runs/{COMPARISON}/spec")
    expect(page.locator(".kv.large dd").first).to_be_visible()
    page.goto(f"/runs/{COMPARISON}/trials")
    expect(page.locator(".trials .sub").first).to_have_text(re.compile(r"#1 · \w+"))
    page.goto(f"/runs/{COMPARISON}/matrix")
    expect(page.locator(".mx.counts")).to_be_visible()


def test_what_is_worth_reading_is_a_link_and_so_are_runs(page: Page):
    page.goto(f"/runs/{COMPARISON}/results")
    expect(page.get_by_role("link", name="Open this trial")).to_have_attribute("href", re.compile("/trials/"))
    page.goto(f"/compare?a={NIGHTS[0]}&b={NIGHTS[1]}")
    expect(page.locator(".about a").first).to_have_attribute("href", f"/runs/{NIGHTS[0]}")
    page.goto(f"/leaderboard?run={NIGHTS[0]}")
    expect(page.locator("#places td a").first).to_have_attribute("href", f"/runs/{NIGHTS[0]}")


def test_a_run_of_the_command_line_is_run_again_with_stored_tasks(page: Page):
    written = {"name": "again", "tasks": [{"dataset": "../tasks", "agent": "oracle", "rollouts": 5}]}

    def by_path(route: Route) -> None:
        route.fulfill(json={**route.fetch().json(), "spec": written})

    page.route(f"**/api/runs/{NIGHTS[0]}", by_path)
    page.goto(f"/new?from={NIGHTS[0]}")
    box = page.get_by_label(re.compile("Spec, as JSON"))
    expect(box).to_have_value(re.compile(r'"path": \{\s+"task": "'))
    expect(box).not_to_have_value(re.compile("dataset"))


def test_a_run_in_which_nothing_has_ended_says_only_that(page: Page):
    def waiting(route: Route) -> None:
        route.fulfill(json={**route.fetch().json(), "status": "pending", "done": 0, "counts": {}})

    page.route(f"**/api/runs/{NIGHTS[0]}", waiting)
    page.goto(f"/runs/{NIGHTS[0]}/results")
    expect(page.locator(".lead").first).to_have_text(re.compile("None of .* trials has ended yet."))
    expect(page.get_by_text("Nothing has ended yet.")).to_be_visible()
    expect(page.get_by_role("link", name="why it waits")).to_have_attribute("href", "/queue")


def test_a_new_run_cannot_start_before_it_is_known_what_to_run(page: Page):
    refused = {"where": "spec", "message": "spec:tasks.0: agent 'terminal' needs a model"}
    plan = {"trials": 1, "seconds": None, "cost_usd": None, "unknown_prices": [], "uncosted": []}
    page.route("**/api/plan", lambda route: route.fulfill(json={**plan, "warnings": [], "errors": [refused]}))
    page.goto("/new")
    expect(page.get_by_role("button", name="Start run")).to_be_disabled()
    page.goto("/new?task=hello")
    expect(page.locator(".notice")).to_contain_text("agent 'terminal' needs a model")
    expect(page.get_by_role("button", name="Start run")).to_be_disabled()


def test_an_experiment_shows_its_charts_without_style_attributes_in_what_came(page: Page):
    page.goto(f"/runs/{SWEEP}")
    expect(page.locator(".picture svg").first).to_be_visible()
    assert page.locator(".picture svg").first.evaluate("e => e.style.maxWidth").endswith("px")


def test_a_transcript_is_read_step_by_step(page: Page):
    page.goto(f"/trials/{TALK}/0")
    expect(page.get_by_role("heading", name=re.compile("say-b"))).to_be_visible()
    expect(page.locator("article.step")).to_have_count(5)
    expect(page.locator(f"#s{FAILING}")).to_contain_text("exit 1")
    page.locator("h1").click()
    page.keyboard.press("e")
    expect(page).to_have_url(re.compile(f"#s{FAILING}$"))
    page.keyboard.press("j")
    expect(page).to_have_url(re.compile("#s4$"))
    page.keyboard.press("]")
    expect(page).to_have_url(re.compile(f"/trials/{TALK}/1"))


def test_two_rollouts_stand_side_by_side_and_part_at_a_step(page: Page):
    page.goto(f"/trials/{TALK}/0")
    page.get_by_title("#1 and #3 side by side").click()
    expect(page.locator(".lead")).to_contain_text("They part at step 3: only #3 does “sed -i s/a/b/ app.py”.")
    expect(page.locator(".pair article.step").first).to_contain_text("sed -i")
    page.get_by_role("button", name="Steps 1–2 do the same").click()
    expect(page.locator(".pair article.step").first).to_contain_text("Print b.")
    page.get_by_role("button", name="Swap").click()
    expect(page.locator(".pairh a").first).to_have_text("#3")


def test_finding_looks_into_folded_output_and_a_line_has_an_address(page: Page):
    page.goto(f"/trials/{TALK}/0")
    expect(page.get_by_role("button", name=re.compile("lines more"))).to_be_visible()
    assert page.locator("#s4-L100").count() == 0
    page.keyboard.press("f")
    page.keyboard.type("line 99")
    expect(page.locator("mark")).to_have_text("line 99")
    expect(page).to_have_url(re.compile("find=line"))
    page.goto(f"/trials/{TALK}/0#s4-L150")
    expect(page.locator("#s4-L150")).to_have_class(re.compile("hit"))


def test_a_long_transcript_has_few_steps_in_the_document(page: Page):
    page.goto(f"/trials/{TALK}/1#s900")
    expect(page.locator("#s900")).to_be_visible()
    assert page.locator("article.step").count() < 130
    assert page.locator(".outl li").count() < 150


def test_what_an_agent_wrote_is_text_and_nothing_else(page: Page):
    for tab in ("transcript", "logs", "files?file=logs/agent.txt"):
        page.goto(f"/trials/{TALK}/0/{tab}")
        expect(page.get_by_text("document.title").first).to_be_visible()
        assert "owned" not in page.title()
        assert page.locator("main img").count() == 0


def test_the_verifier_shows_tests_with_their_messages(page: Page):
    page.goto(f"/trials/{TALK}/0/verifier")
    expect(page.get_by_text("1 of 2 passed")).to_be_visible()
    expect(page.locator("details[open]")).to_contain_text("expected b, found a")


def test_the_verifier_shows_the_reward_of_every_step_of_a_task(page: Page):
    def in_steps(route: Route) -> None:
        route.fulfill(json={**route.fetch().json(), "steps": {"clean": 1.0, "answer": 0.5}})

    page.route(f"**/api/trials/{TALK}/0/verifier**", in_steps)
    page.goto(f"/trials/{TALK}/0/verifier")
    expect(page.locator(".rewt tbody tr")).to_have_text([re.compile("clean1"), re.compile("answer0.50")])


def test_a_live_log_is_followed_until_the_reader_scrolls_up(page: Page):
    def listed(route: Route) -> None:
        found = route.fetch().json()
        route.fulfill(json={**found, "logs": [{**each, "live": True} for each in found["logs"]]})

    told = f"data: {json.dumps({'text': 'first line'})}\n\nevent: end\ndata: {{}}\n\n"
    page.route(f"**/api/trials/{TALK}/0/logs", listed)
    page.route("**/follow**", lambda route: route.fulfill(body=told, content_type="text/event-stream"))
    page.goto(f"/trials/{TALK}/0/logs")
    box = page.get_by_role("log")
    expect(box).to_contain_text("first line")
    grow = (
        "box => { for (let at = 0; at < 200; at++) box.append(`more ${at}`, document.createElement('br')); }"
    )
    box.evaluate(grow)
    box.dispatch_event("scroll")
    expect(page.get_by_text("Following", exact=True)).to_be_visible()
    box.evaluate("box => { box.scrollTop = box.scrollHeight; }")
    box.dispatch_event("scroll")
    box.evaluate("box => { box.scrollTop -= 300; }")
    expect(page.get_by_text("Not following")).to_be_visible()


def test_a_diff_shows_lines_that_look_like_headers_as_what_they_are(page: Page):
    page.goto(f"/trials/{TALK}/0/files")
    changed = page.locator(".fdiff", has_text="query.sql")
    expect(changed.locator("header")).to_contain_text("+2")
    expect(changed.locator("header")).to_contain_text("−2")
    expect(changed).to_contain_text("--- an old remark")
    expect(changed).to_contain_text("+++ counter")
    expect(page.locator(".fdiff")).to_have_count(2)


def test_files_and_resources_of_a_trial(page: Page):
    page.goto(f"/trials/{TALK}/0/files")
    expect(page.locator(".fdiff").first).to_contain_text("+print('b')")
    page.goto(f"/trials/{TALK}/0/resources")
    expect(page.get_by_role("heading", name="Where the time went")).to_be_visible()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("/history", "nightly"),
        ("/history?series=nightly", "nightly over time"),
        (f"/leaderboard?run={COMPARISON}", "Leaderboard"),
        ("/certificates", "Certificates"),
        ("/timings", "Nothing is saved here yet."),
        ("/experiments", "memory_db"),
        ("/pair", "Choose two trials."),
        ("/costs", "Costs"),
        ("/queue", "Nothing waits."),
        ("/tasks", "Drop task ZIPs here"),
        ("/settings", "Model keys"),
        ("/nowhere", "There is no page at this address."),
        ("/runs/20200101T000000-000000", "Not found"),
    ],
)
def test_every_other_page_says_what_it_is(page: Page, address: str, said: str):
    page.goto(address)
    expect(page.locator("main")).to_contain_text(said)


def test_the_keys_are_listed_and_can_be_switched_off(page: Page):
    page.goto("/runs")
    page.locator("h1").click()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("next failure")
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("s")
    expect(page).to_have_url(re.compile("/settings"))
    page.get_by_label("Keyboard shortcuts").uncheck()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_chosen_scheme_stays(page: Page):
    page.goto("/settings")
    page.get_by_role("button", name="Dark", exact=True).click()
    page.reload()
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"


def test_a_token_is_made_shown_once_and_revoked(page: Page, site: Serving):
    page.goto("/settings")
    page.get_by_role("button", name="New token").click()
    page.get_by_label("Name", exact=True).first.fill("ci-nightly")
    page.get_by_role("button", name="Make token").click()
    expect(page.locator(".notice.info code")).to_have_text(re.compile("^pt_"))
    page.reload()
    expect(page.get_by_role("cell", name="ci-nightly")).to_be_visible()
    assert "pt_" not in page.locator("main").inner_text()
    page.get_by_role("button", name="Revoke", exact=True).click()
    page.get_by_role("button", name="Revoke it").click()
    expect(page.locator("main")).to_contain_text("revoked")


def test_a_project_and_a_webhook_are_made_and_told_in_the_audit(page: Page):
    page.goto("/settings#projects")
    page.get_by_role("button", name="New project").click()
    page.get_by_label("Short name").fill("suites")
    page.get_by_label("Runs at a time").fill("4")
    page.get_by_role("button", name="Make project").click()
    expect(page.locator("#projects table")).to_contain_text("0 of 4")
    page.get_by_role("button", name="New webhook").click()
    page.get_by_label("Address").fill("https://example.org/proctor")
    page.get_by_role("button", name="Add webhook").click()
    expect(page.locator("#webhooks .notice code")).to_have_text(re.compile("^ws_"))
    expect(page.locator("#webhooks table")).to_contain_text("ends, cannot be run")
    page.reload()
    expect(page.locator("#audit")).to_contain_text("webhook add")
    page.locator("#webhooks").get_by_role("button", name="Remove").click()
    page.get_by_role("button", name="Remove it").click()
    expect(page.locator("#webhooks")).to_contain_text("Nobody is told.")


def test_notes_and_labels_of_a_trial_stay(page: Page):
    page.goto(f"/trials/{TALK}/2/notes")
    page.get_by_label("Another label").fill("odd")
    page.get_by_role("button", name="Add label").click()
    expect(page.locator("main .tag", has_text="odd").first).to_be_visible()
    page.reload()
    expect(page.locator("main .tag", has_text="odd").first).to_be_visible()
