"""Run the published baseline of the performance harness again, and bring the page about it up to date."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FOLDER = Path("deliverables/perf")
PAGE = ROOT / "docs/explanation/perf-baseline.md"
MARKS = ("<!-- figures -->", "<!-- end of figures -->")
EPISODES, WORKERS = 1000, 4
CHARTS = {
    "latency": "Wall clock of each episode, in order of start",
    "overhead": "Mean time of each phase of an episode",
    "system": "CPU, memory of the harness and disk writes over the run",
    "groups": "Median and p95 of each task and agent",
}


def main() -> int:
    """Write a new set, remove the one before it, and bring the page up to date."""
    words = ["perf", "--episodes", str(EPISODES), "--workers", str(WORKERS), "--output-dir", str(FOLDER)]
    done = subprocess.run(
        [sys.executable, "-m", "proctor.cli.main", *words, "--strict-spec", "--json"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        print(f"proctor perf ended with exit code {done.returncode}; the old baseline stays\n{done.stdout}")
        return done.returncode
    files = {Path(name).name for name in json.loads(done.stdout)["files"]}
    for path in (ROOT / FOLDER).glob("perf-*"):
        if path.name not in files:
            path.unlink()
    stamp = next(name for name in files if name.startswith("perf-manifest-"))[len("perf-manifest-") : -5]
    write_page(stamp)
    return 0


def write_page(stamp: str) -> None:
    """Put the figures of a set between the page's marks."""
    text = PAGE.read_text()
    pattern = re.compile(f"{re.escape(MARKS[0])}.*{re.escape(MARKS[1])}", re.DOTALL)
    PAGE.write_text(pattern.sub(lambda _: f"{MARKS[0]}\n{figures(stamp)}\n{MARKS[1]}", text))


def figures(stamp: str) -> str:
    """The tables, the charts and the machine, as Markdown."""
    summary, metrics, manifest = (document(kind, stamp) for kind in ("summary", "metrics", "manifest"))
    machine = manifest["environment"]
    made = (
        f"Made {summary['generated_at'][:10]} with Proctor {manifest['versions']['proctor']} on "
        f"{machine['cores']} cores ({machine['cpu_model']}), load {machine['load'][0]:g} before it began. "
        f"The set is `{FOLDER}/perf-*-{stamp}.*`."
    )
    phases = [f"{milli(value / summary['episodes'])}" for value in summary["overhead_s"].values()]
    parts = [
        made,
        table(["figure", "value"], whole(summary)),
        "Mean of each phase of an episode:",
        table(list(summary["overhead_s"]), [phases]),
        table(
            ["task", "agent", "episodes", "as expected", "same seed, same trace", "median", "p95"],
            [group(each) for each in metrics["groups"]],
        ),
        *(f"![{title}](../../{FOLDER}/perf-chart-{name}-{stamp}.svg)" for name, title in CHARTS.items()),
    ]
    return "\n" + "\n\n".join(parts) + "\n"


def whole(summary: dict[str, Any]) -> list[list[str]]:
    """The figures of the whole run."""
    inner, left = summary["summary"], summary["run_artifacts"]
    longest = milli(summary["max_wall_clock_s"])
    spread = f"median {milli(inner['p50_wall_clock_s'])}, p95 {milli(inner['p95_wall_clock_s'])}"
    rate = f"{summary['throughput_eps']:.1f} per second"
    return [
        ["episodes, workers", f"{summary['episodes']}, {inner['workers']}"],
        ["not as expected", str(summary["failure_count"])],
        ["all episodes", f"{summary['wall_clock_total_s']:.1f} s, {rate}"],
        ["one episode", f"{spread}, longest {longest}"],
        ["the harness's own share", f"{100 * summary['overhead_share']:.1f} %"],
        ["left on disk", f"{left['file_count']} files, {left['total_bytes'] / 1e6:.1f} MB"],
        ["growth", ", ".join(f"{name} {word}" for name, word in summary["growth"].items())],
    ]


def group(each: dict[str, Any]) -> list[str]:
    """The row of one task and agent."""
    rate = each["determinism_rate"]
    return [
        f"`{each['task_ref'].partition('@')[0]}`",
        each["agent"],
        str(each["run_count"]),
        f"{each['success_rate']:.0%}",
        "–" if rate is None else f"{rate:.0%}",
        milli(each["p50_wall_clock_s"]),
        milli(each["p95_wall_clock_s"]),
    ]


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def milli(seconds: float) -> str:
    """Seconds as milliseconds."""
    return f"{1e3 * seconds:.1f} ms"


def document(kind: str, stamp: str) -> dict[str, Any]:
    """One document of the set."""
    found: dict[str, Any] = json.loads((ROOT / FOLDER / f"perf-{kind}-{stamp}.json").read_text())
    return found


if __name__ == "__main__":
    sys.exit(main())
