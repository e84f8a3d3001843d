"""axe-core on each page in both schemes, and no page that scrolls sideways at three widths."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.browser.store import COMPARISON, NIGHTS, SWEEP, TALK

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.needs("chromium", "web-page")

AXE = Path(__file__).parents[2] / "ui/node_modules/axe-core/axe.min.js"
PAGES = (
    "/runs",
    f"/runs/{COMPARISON}/results",
    f"/runs/{COMPARISON}/matrix",
    f"/runs/{COMPARISON}/trials",
    f"/runs/{COMPARISON}/errors",
    f"/runs/{COMPARISON}/performance",
    f"/runs/{COMPARISON}/cost",
    f"/runs/{COMPARISON}/spec",
    f"/runs/{SWEEP}",
    f"/trials/{TALK}/0",
    f"/trials/{TALK}/0/verifier",
    f"/trials/{TALK}/0/files",
    f"/trials/{TALK}/0/resources",
    f"/trials/{TALK}/0/logs",
    f"/trials/{TALK}/0/notes",
    f"/trials/{SWEEP}/0",
    f"/compare?a={NIGHTS[0]}&b={NIGHTS[1]}",
    "/history",
    "/history?series=nightly",
    f"/leaderboard?run={COMPARISON}",
    "/certificates",
    "/timings",
    "/experiments",
    f"/pair?a={TALK}/0&b={TALK}/2",
    "/costs",
    "/queue",
    "/tasks",
    "/new",
    "/settings",
)
WIDTHS = (1440, 900, 390)
RULES = {"light": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"], "dark": ["color-contrast"]}
"""A scheme changes colours and nothing else, so the rest is looked at once."""


@pytest.mark.parametrize("address", PAGES)
def test_a_page_is_accessible_in_both_schemes_and_fits_every_width(page: Page, address: str):
    page.goto(address)
    page.locator("main h1").wait_for()
    page.locator(".bones").first.wait_for(state="detached")
    page.evaluate(AXE.read_text())
    for scheme, rules in RULES.items():
        page.emulate_media(color_scheme=scheme)
        found = page.evaluate("rules => axe.run({resultTypes: ['violations'], runOnly: rules})", rules)
        assert not [_told(each) for each in found["violations"]], scheme
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, width


def test_a_matrix_is_not_wider_than_its_place_before_its_cells_are_measured_again(page: Page):
    page.goto(f"/runs/{COMPARISON}/matrix")
    page.locator(".mx tbody tr").first.wait_for()
    sizes = "return [box.querySelector('.mx').offsetWidth, box.scrollWidth]"
    shrunk = f"box => {{ box.style.width = '400px'; {sizes}; }}"
    table, box = page.locator(".mxw").first.evaluate(shrunk)
    assert table > box == 400, "the table is too wide until the next frame, and the page is not"


def _told(violation: dict) -> str:
    nodes = [f"{node['html'][:160]} {node['failureSummary'][:300]}" for node in violation["nodes"][:3]]
    return f"{violation['id']}: {violation['help']}: {nodes}"
