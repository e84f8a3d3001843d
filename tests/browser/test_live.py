"""What moves: a run that is submitted from the page, live updates, a server that goes away and comes back."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING, Any

import pytest
from tests.browser.store import NIGHTS
from tests.browser.test_pages import expect
from tests.server.conftest import begin, finish

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page
    from tests.server.conftest import Serving

OURS = {"X-Proctor-Request": "1"}
pytestmark = pytest.mark.needs("chromium", "web-page")


def test_a_run_that_comes_waits_behind_a_chip_and_moves_nothing(page: Page, site: Serving):
    from tests.browser import store

    from proctor.settings import load_settings
    from proctor.store.open import open_store

    page.goto("/runs")
    expect(page.get_by_text("Live", exact=True).first).to_be_visible()
    expect(page.locator("tr.rr").first).to_be_visible()
    before = page.locator("tr.rr").count()
    settings = load_settings({"PROCTOR_HOME": str(site.home / ".proctor")})
    with open_store(settings.store_url) as opened:
        store._put(opened, store.nightly(7), "20261109T020000-ffffff", 1_794_000_000.0)
    chip = page.get_by_role("button", name="1 new run")
    expect(chip).to_be_visible()
    assert page.locator("tr.rr").count() == before
    chip.click()
    expect(page.locator("tr.rr")).to_have_count(before + 1)
    site.client.delete("/api/runs/20261109T020000-ffffff", headers=OURS).raise_for_status()


def test_a_page_says_since_when_it_is_not_live_and_comes_back_by_itself(browser: Browser, tmp_path: Path):
    first = begin(tmp_path)
    context = browser.new_context(base_url=first.address)
    try:
        tab = context.new_page()
        tab.goto("/runs")
        expect(tab.get_by_text("Nothing has run here yet")).to_be_visible()
        expect(tab.locator(".live", has_text="Live")).to_be_visible()
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        expect(tab.get_by_text(re.compile("Not live since"))).to_be_visible()
        again = begin(tmp_path, "--port", first.address.rpartition(":")[2])
        try:
            expect(tab.locator(".live:not(.off)")).to_have_text("Live")
        finally:
            finish(again)
    finally:
        context.close()
        finish(first)


@pytest.mark.needs("bubblewrap")
def test_a_page_shows_the_end_of_a_run_whose_server_was_killed_in_the_middle(
    browser: Browser, tmp_path: Path
):
    from tests.server import tasks
    from tests.server.conftest import eventually

    quick = {"PROCTOR_LEASE_S": "2", "PROCTOR_SERVE_PARALLEL": "1"}
    first = begin(tmp_path, env=quick)
    context = browser.new_context(base_url=first.address)
    context.set_default_timeout(15_000)
    try:
        entry = {"path": {"upload": tasks.upload(first.client, seconds=1)["id"]}, "rollouts": 4}
        spec = {"name": "cut", "tasks": [{**entry, "agent": "oracle"}], "sandbox": {"host_root": True}}
        run = first.client.post("/api/runs", json={"spec": spec}, headers=OURS).json()["id"]
        tab = context.new_page()
        loads: list[str] = []
        tab.on("load", lambda: loads.append("load"))
        tab.goto(f"/runs/{run}")
        eventually(lambda: first.client.get(f"/api/runs/{run}").json()["done"])
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        expect(tab.get_by_text(re.compile("Not live since"))).to_be_visible()
        again = begin(tmp_path, "--port", first.address.rpartition(":")[2], env=quick)
        try:
            expect(tab.locator(".live:not(.off)")).to_have_text("Live")
            ended = eventually(lambda: _when_done(again, run), within_s=60)
            assert ended["counts"] == {"passed": 4}, "nothing is lost and nothing is there twice"
            expect(tab.locator("h1")).to_contain_text("done")
            expect(tab.locator(".lead").first).to_contain_text("100")
            assert loads == ["load"], "the page came back by itself"
        finally:
            finish(again)
    finally:
        context.close()
        finish(first)


def _when_done(server: Serving, run: str) -> dict[str, Any] | None:
    found: dict[str, Any] = server.client.get(f"/api/runs/{run}").json()
    return found if found["status"] == "done" else None


def test_a_server_that_needs_tokens_asks_for_one_and_keeps_it_from_scripts(browser: Browser, tmp_path: Path):
    server = begin(tmp_path, "--tokens")
    context = browser.new_context(base_url=server.address)
    try:
        token = next(line for line in server.said if "pt_" in line).rpartition(" ")[2]
        tab = context.new_page()
        tab.goto("/runs")
        tab.get_by_label("Token").fill("pt_wrong")
        tab.get_by_role("button", name="Sign in").click()
        expect(tab.locator(".field.err")).to_be_visible()
        tab.get_by_label("Token").fill(token)
        tab.get_by_role("button", name="Sign in").click()
        expect(tab.get_by_text("Nothing has run here yet")).to_be_visible()
        assert token not in tab.evaluate("document.cookie + JSON.stringify(localStorage)")
    finally:
        context.close()
        finish(server)


@pytest.mark.needs("bubblewrap")
def test_an_uploaded_task_is_run_from_the_page_and_its_result_appears(page: Page, tmp_path: Path):
    from tests.server.tasks import files, packed

    archive = tmp_path / "hello.zip"
    archive.write_bytes(packed(files()))
    page.goto("/tasks")
    page.locator("input[type=file]").set_input_files(archive)
    expect(page.get_by_role("button", name="Run the author’s solution first")).to_be_visible()
    page.get_by_role("button", name="Run the author’s solution first").click()
    expect(page).to_have_url(re.compile("/runs/"))
    expect(page.locator("h1")).to_contain_text(re.compile("done|running|waiting"))


def test_a_plan_is_shown_while_the_spec_is_written_and_a_mistake_is_named(page: Page):
    page.goto(f"/new?from={NIGHTS[0]}")
    box = page.get_by_label(re.compile("Spec, as JSON"))
    expect(box).not_to_have_value("")
    box.fill('{"name": "x", "tasks": [{"path": {"task": "nothing"}, "agent": "oracle", "rollouts": 1}]}')
    expect(page.locator(".notice.bad")).to_contain_text("There is no stored task 'nothing'")
