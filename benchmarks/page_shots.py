"""Pictures of every page at three widths in both schemes, three on a sheet; and what a program sees wrong.

Run it as `python benchmarks/page_shots.py FOLDER [--server URL] [--only PATTERN]`. Without a
server the store of the page's tests is filled and served. Of each kind of run and of trial one is taken.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import httpx
from tests.browser import store
from tests.server.conftest import running

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WIDTHS = (1440, 900, 390)
SCHEMES = ("light", "dark")
SHEET, TALLEST = 740, 2000
"""What is further down is not in the picture."""
PLACES = (
    "/runs",
    "/runs?kind=experiment&sort=-cost",
    "/runs?q=nothing-like-this",
    "/compare",
    "/history",
    "/leaderboard",
    "/experiments",
    "/certificates",
    "/timings",
    "/tasks",
    "/new",
    "/pair",
    "/queue",
    "/schedules",
    "/costs",
    "/settings",
    "/nowhere",
    "/runs/20200101T000000-000000",
    "/trials/20200101T000000-000000/0",
)
SERIES, PAIRS = 4, 2
OF_A_RUN = ("/new?from={}", "/certificates?run={}&kind=aa")
TASK_TABS = ("results", "matrix", "trials", "errors", "performance", "cost", "spec")
EXPERIMENT_TABS = ("results", "trials", "errors", "performance", "spec")
ROLLOUT_TABS = ("transcript", "verifier", "files", "resources", "logs", "notes")
POINT_TABS = ("values", "resources", "logs", "notes")
WRONG = """width => {
  const said = new Set();
  const name = each => {
    const text = each.innerText || each.value || each.ariaLabel || '';
    return `${each.tagName.toLowerCase()}.${each.className} “${text.slice(0, 50)}”`;
  };
  const wide = document.documentElement.scrollWidth, least = width < 861 ? 30 : 24;
  if (wide > width) said.add(`the page is ${wide} wide`);
  const visible = {checkVisibilityCSS: true, checkOpacity: true};
  for (const each of document.querySelectorAll('body *')) {
    if (each.closest('svg, .vh, .skip') || !each.checkVisibility(visible)) continue;
    const texts = [...each.childNodes].filter(node => node.nodeType === 3);
    const own = texts.map(node => node.data).join("").trim();
    const box = each.getBoundingClientRect(), style = getComputedStyle(each);
    const cuts = !['visible', 'auto'].includes(style.overflowX) && each.scrollWidth > each.clientWidth + 1;
    if (own && cuts && !each.closest('[title]')) said.add(`cut without a title: ${name(each)}`);
    const outside = box.width && (box.right > width + 1 || box.left < -1);
    if (own && outside && !each.closest('.scroll, .tabs, .scrollx, .snav, .legend, .trunc, pre, .term'))
      said.add(`outside: ${name(each)}`);
    const pressed = 'button, select, input:not([type=checkbox], [type=radio]), a.btn, a.chip, summary';
    if (each.matches(pressed) && box.height < least - 0.5)
      said.add(`${Math.round(box.height)} px high: ${name(each)}`);
    if (/undefined|NaN|null|\\[object/.test(own) && !each.closest('pre, code, .term, textarea'))
      said.add(`an empty word: ${name(each)}`);
  }
  return [...said];
}"""


def main() -> None:
    """Take the pictures, and print what is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--server", metavar="URL")
    parser.add_argument("--only", default="", metavar="PATTERN", help="Addresses that match.")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    from playwright.sync_api import sync_playwright

    with _served(asked.server) as server, sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
        )
        wanted = [each for each in addresses(server) if re.search(asked.only, each)]
        for number, address in enumerate(wanted, 1):
            print(f"{number}/{len(wanted)} {address}", flush=True)
            _sheets(browser, asked.folder, address, _shots(browser, server, address))
        browser.close()


@contextmanager
def _served(address: str | None) -> Iterator[str]:
    if address:
        yield address
        return
    with tempfile.TemporaryDirectory() as folder:
        store.fill(Path(folder) / ".proctor", many_trials=2_000, many_steps=1_500)
        with running(Path(folder)) as server:
            yield server.address


def addresses(server: str) -> list[str]:
    """Of every page, with one run and one trial of each kind."""
    with httpx.Client(base_url=server, timeout=60, trust_env=False) as client:

        def listed(path: str) -> list[dict[str, Any]]:
            return client.get(path).raise_for_status().json()["items"]

        runs = listed("/api/runs?limit=200")
        found = [*PLACES, *(f"/history?series={each['name']}" for each in listed("/api/series")[:SERIES])]
        found += [f"/timings?file={each['name']}" for each in listed("/api/timings")]
        found += {f"/certificates?run={each['run']}": 0 for each in listed("/api/certificates")}
        rolled = [each for each in runs if each["execution"] == "task" and each["status"] == "done"]
        names = {each["name"]: each["id"] for each in rolled}
        later = [each for each in rolled if names[each["name"]] != each["id"]]
        found += [f"/compare?a={names[each['name']]}&b={each['id']}" for each in later[:PAIRS]]
        found += [f"/leaderboard?run={'&run='.join(names.values())}"]
        found += [way.format(each["id"]) for each in rolled[:1] for way in OF_A_RUN]
        kinds: set[str] = set()
        for run in runs:
            found += _of_run(client, run, kinds)
        return found


def _of_run(client: httpx.Client, run: dict[str, Any], kinds: set[str]) -> Iterator[str]:
    kind = f"{run['name']} {run['kind']} {run['status']}"
    if kind in kinds:
        return
    kinds.add(kind)
    yield f"/runs/{run['id']}"
    shape = f"{run['kind']} {run['status']} {bool(run['models'])}"
    if shape not in kinds:
        kinds.add(shape)
        tabs = TASK_TABS if run["kind"] == "task" else EXPERIMENT_TABS
        yield from (f"/runs/{run['id']}/{tab}" for tab in tabs)
    trials = client.get(f"/api/runs/{run['id']}/trials?limit=200").json()["items"]
    for trial in trials:
        place = f"/trials/{run['id']}/{trial['index']}"
        ended = f"{run['kind']} {bool(trial['model'])} {trial['outcome'] or trial['state']}"
        if ended not in kinds:
            kinds.add(ended)
            yield place
        if (shown := f"{run['kind']} {bool(trial['model'])}") not in kinds and trial["outcome"]:
            kinds.add(shown)
            tabs = ROLLOUT_TABS if run["kind"] == "task" else POINT_TABS
            yield from (f"{place}/{tab}" for tab in tabs)
    if len(trials) > 1 and trials[0]["model"] and "pair" not in kinds:
        kinds.add("pair")
        yield f"/pair?a={run['id']}/{trials[0]['index']}&b={run['id']}/{trials[1]['index']}"


def _shots(browser: Browser, server: str, address: str) -> dict[tuple[str, int], bytes]:
    """By scheme and width."""
    taken = {}
    for width in WIDTHS:
        phone = width < 500
        context = browser.new_context(
            viewport={"width": width, "height": 900}, has_touch=phone, is_mobile=phone
        )
        page = context.new_page()
        page.on("pageerror", lambda error: print(f"    a mistake: {error}"))
        page.goto(server + address)
        _settled(page)
        for each in page.evaluate(WRONG, width):
            print(f"    {width}: {each}")
        high = min(TALLEST, max(900, page.evaluate("document.documentElement.scrollHeight")))
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            clip = {"x": 0, "y": 0, "width": width, "height": high}
            taken[scheme, width] = page.screenshot(full_page=True, clip=clip)
        context.close()
    return taken


def _settled(page: Page) -> None:
    page.locator("main h1, main h2").first.wait_for(timeout=60_000)
    page.locator(".bones").first.wait_for(state="detached", timeout=60_000)
    page.wait_for_timeout(400)


def _sheets(browser: Browser, folder: Path, address: str, taken: dict[tuple[str, int], bytes]) -> None:
    """Each picture by itself, and the top of the three of a scheme beside each other."""
    name = re.sub(r"[^\w.-]+", "_", address.strip("/"))[:120]
    page = browser.new_page(viewport={"width": 1610, "height": SHEET})
    for scheme in SCHEMES:
        shown = []
        for width in WIDTHS:
            file = folder / "single" / f"{name}.{width}.{scheme}.png"
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(taken[scheme, width])
            shown.append(f'<img src="{file.absolute().as_uri()}" width="{width * 0.58:.0f}">')
        made = folder / "sheet.html"
        made.write_text(f"<body style='margin:0;display:flex;gap:8px;align-items:start'>{''.join(shown)}")
        page.goto(made.absolute().as_uri())
        page.screenshot(path=folder / f"{name}.{scheme}.png")
        made.unlink()
    page.close()


if __name__ == "__main__":
    main()
