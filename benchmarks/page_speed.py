"""How fast the page opens a run of 10,000 trials and a transcript of 5,000 steps, and what scrolling costs.

Real server, real store, system Chromium. Opening: from the request until the first row or step is drawn,
beside the first paint. Scrolling: script time per frame, and the longest task, over a hundred turns.
In CI the same pages are opened with 2,000 trials and 1,500 steps (tests/browser), where no timing is judged.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from playwright.sync_api import Browser, Page, sync_playwright
from tests.browser import store
from tests.server.conftest import running

ROUNDS = 5
TURNS = 100
FRAME_MS = 1000 / 60
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
LONGEST = """() => { window.longest = 0; new PerformanceObserver(list => {
  for (const each of list.getEntries()) window.longest = Math.max(window.longest, each.duration) })
  .observe({type: 'longtask', buffered: false}) }"""
PLACES = {
    "runs": ("/runs", "tr.rr"),
    "10,000 trials: matrix": (f"/runs/{store.LONG}/matrix", "table.mx a.c"),
    "10,000 trials: table": (f"/runs/{store.LONG}/trials", "table.trials tbody td a"),
    "5,000 steps": (f"/trials/{store.TALK}/1", "article.step"),
    "5,000 steps, at step 4,000": (f"/trials/{store.TALK}/1#s4000", "#s4000"),
}


def main() -> None:
    """Measure, and print a table."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        store.fill(home / ".proctor")
        with running(home) as server, sync_playwright() as started:
            browser = started.chromium.launch(
                executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
            )
            print(f"{'page':<30}{'first paint':>13}{'shown':>10}{'script/frame':>14}{'longest task':>14}")
            for name, (address, wanted) in PLACES.items():
                _place(browser, server.address, name, address, wanted)
            browser.close()


def _place(browser: Browser, base: str, name: str, address: str, wanted: str) -> None:
    paints, shown = [], []
    for _ in range(ROUNDS):
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        began = time.perf_counter()
        page.goto(base + address, wait_until="commit")
        page.locator(wanted).first.wait_for()
        shown.append(1000 * (time.perf_counter() - began))
        paints.append(page.evaluate(PAINT))
        if len(shown) < ROUNDS:
            page.close()
    script_ms, longest_ms = _scroll(page)
    page.close()
    print(
        f"{name:<30}{statistics.median(paints):>10.0f} ms{statistics.median(shown):>7.0f} ms"
        f"{script_ms:>11.2f} ms{longest_ms:>11.0f} ms",
        flush=True,
    )


def _scroll(page: Page) -> tuple[float, float]:
    """Script time per frame and the longest task while the wheel turns."""
    page.wait_for_timeout(1000)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    page.evaluate(LONGEST)

    def spent() -> float:
        found = session.send("Performance.getMetrics")["metrics"]
        return next(each["value"] for each in found if each["name"] == "ScriptDuration")

    before = spent()
    page.mouse.move(900, 600)
    for _ in range(TURNS):
        page.mouse.wheel(0, 300)
        page.wait_for_timeout(FRAME_MS)
    return 1000 * (spent() - before) / TURNS, page.evaluate("window.longest")


if __name__ == "__main__":
    main()
