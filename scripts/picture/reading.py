"""What is read: every command that shows, judges, writes or moves results that are there."""

from __future__ import annotations

import gzip
import shutil

from world import TREE, WORLD, Camera

RUNS = (
    "sweep",
    "profiled",
    "raises",
    "study",
    "log-forensics",
    "agents",
    "tight",
    "lost",
    "judged",
    "lost_parcel",
)
OUT = WORLD / "out" / "read"


def read(camera: Camera) -> None:
    """Answers and files of reading commands. Files that they write are kept below `read/files`."""
    OUT.mkdir(parents=True)
    of_runs(camera)
    of_several_runs(camera)
    of_the_project(camera)
    moved(camera)
    mistakes(camera)
    shutil.copytree(OUT, camera.folder / "read" / "files")


def of_runs(camera: Camera) -> None:
    """One run at a time."""
    camera.both("read/ls", "ls")
    camera.both("read/ls-some", "ls", "--name", "s*", "--limit", "2", "--status", "done")
    for run in RUNS:
        for command in ("show", "watch", "logs"):
            more = ("--no-follow",) if command == "watch" else ()
            camera.both(f"read/{command}-{run}", command, run, *more)
        camera.plain(f"read/report-{run}", "report", run, "--output", OUT / f"report-{run}")
        camera.json(f"read/report-{run}", "report", run, "--output", OUT / f"again-{run}", "--format", "json")
    camera.both("read/show-trials", "show", "study", "--trials")
    for run in ("study", "agents", "judged"):
        camera.both(f"read/summarize-{run}", "summarize", run)
    camera.plain("read/logs-0", "logs", "study", "0")
    camera.plain("read/logs-trajectory", "logs", "agents", "0", "--log", "trajectory")
    camera.plain("read/logs-tail", "logs", "agents", "0", "--log", "agent", "--tail", "2")
    camera.both("read/gate-fields", "gate", "study", "--fields")


def written(name: str) -> tuple[str, ...]:
    """Options that write a result in every form."""
    names = (("markdown", "md"), ("html", "html"), ("document", "document.json"))
    return tuple(word for option, ending in names for word in (f"--{option}", str(OUT / f"{name}.{ending}")))


def of_several_runs(camera: Camera) -> None:
    """Comparisons, gates, noise, history, ranks."""
    camera.both("read/compare-runs", "compare", "study~1", "study", *written("compare"))
    camera.both("read/compare-experiments", "compare", "sweep~1", "sweep", "--metric", "cpu_s")
    camera.both("read/compare-sweeps", "compare", "sweep~2", "sweep", "--margin", "2%")
    for tool in ("pyperf", "pytest-benchmark", "hyperfine"):
        sides = (f"project/foreign/{tool}-a.json", f"project/foreign/{tool}-b.json")
        camera.both(f"read/compare-{tool}", "compare", *sides)
    for name in ("identical-json", "slower-5-sort", "sleeping"):
        saved = WORLD / "tmp" / f"{name}.json"
        saved.write_bytes(gzip.decompress((TREE / "tests/data/lockstep" / f"{name}.json.gz").read_bytes()))
        camera.both(f"read/ab-{name}", "ab", "project/sweep.yaml", "--replay", saved)
    camera.plain("read/baseline-pin", "baseline", "pin", "main", "agents", "--reason", "the first")
    camera.both("read/baseline-list", "baseline", "list")
    camera.both("read/baseline-show", "baseline", "show", "main")
    rules = ("--rules", "project/rules.yaml")
    forms = ("--junit", str(OUT / "gate.xml"), "--github")
    camera.plain("read/gate", "gate", "study", *rules, "--baseline", "main", *forms, *written("gate"))
    camera.json("read/gate", "gate", "study", *rules, "--baseline", "main")
    camera.both("read/gate-of-the-spec", "gate", "sweep")
    camera.both("read/aa", "aa", "study", "--simulations", "200", "--out", OUT / "aa.html")
    camera.both("read/aa-experiment", "aa", "sweep", "--simulations", "200")
    for series in ("sweep", "study"):
        camera.both(f"read/history-{series}", "history", series, *written(f"history-{series}"))
    camera.both("read/leaderboard", "leaderboard", "study", "agents", *written("leaderboard"))
    camera.both("read/queue", "queue")


def of_the_project(camera: Camera) -> None:
    """Specs, tasks, experiments, agents, and this machine."""
    for spec in ("project/study.toml", "project/sweep.yaml", "specs/json_encode.yaml"):
        stem = spec.partition("/")[2].partition(".")[0]
        camera.both(f"read/plan-{stem}", "plan", spec)
        camera.plain(f"read/print-spec-{stem}", "plan", spec, "--print-spec")
    camera.both("read/list", "list", "--experiments", "experiments.d")
    camera.plain("read/list-params", "list", "--params")
    camera.both("read/list-one", "list", "sorting", "--experiments", "experiments.d")
    camera.both("read/tasks-check", "tasks", "check", "tasks")
    camera.both("read/tasks-check-odd", "tasks", "check", "project/odd_tasks", "--strict")
    camera.plain("read/tasks-pack", "tasks", "pack", "tasks/median-bug", OUT / "median-bug.zip")
    camera.plain("read/new-task", "new", "task", "first", "--dir", OUT / "new", "--specs", OUT / "new")
    camera.plain(
        "read/new-experiment", "new", "experiment", "parsing", "--dir", OUT / "new", "--specs", OUT / "new"
    )
    for command in ("agents", "models", "datasets ls", "images ls", "keys ls", "db check", "db gc --dry-run"):
        camera.both(f"read/{command.replace(' ', '-')}", *command.split())
    camera.both("measured/doctor", "doctor")
    for shell in ("bash", "zsh", "fish"):
        camera.plain(f"read/completion-{shell}", "completion", shell)


def moved(camera: Camera) -> None:
    """Results out, into an empty store, onto pages and into receipts."""
    elsewhere = {"PROCTOR_HOME": str(WORLD / "elsewhere")}
    for form in ("folder", "harbor", "csv", "parquet"):
        camera.plain(f"read/export-{form}", "export", "study", OUT / f"study-{form}", "--format", form)
    camera.json("read/export-agents", "export", "agents", OUT / "agents-harbor", "--format", "harbor")
    for form in ("csv", "runresult"):
        camera.plain(f"read/export-sweep-{form}", "export", "sweep", OUT / f"sweep-{form}", "--format", form)
    camera.plain("read/import-folder", "import", OUT / "study-folder", env=elsewhere)
    camera.json("read/import-again", "import", OUT / "study-folder", env=elsewhere)
    camera.plain("read/import-harbor", "import", OUT / "agents-harbor", env=elsewhere)
    camera.both("read/imported-ls", "ls", env=elsewhere)
    camera.both("read/imported-show", "show", "study", env=elsewhere)
    camera.both("read/imported-summarize", "summarize", "agents-harbor", env=elsewhere)
    camera.both("read/publish", "publish", OUT / "site", "--series", "s*", "--compare", "study~1", "study")
    camera.plain("read/receipt", "receipt", "study", OUT / "study.receipt.zip")
    camera.both("read/verify", "verify", OUT / "study.receipt.zip")
    for saved in sorted((TREE / "tests/data/receipts").glob("*.receipt.zip")):
        camera.both(f"read/verify-{saved.name.partition('-')[0]}", "verify", saved)
    camera.plain("read/rm", "rm", "study", "--yes", env=elsewhere)


def mistakes(camera: Camera) -> None:
    """What is answered to what cannot be done."""
    wrong = WORLD / "project/wrong.toml"
    wrong.write_text('name = "x"\n[[tasks]]\npath = "../tasks/config-edit"\nrollout = 2\n')
    for name, line in {
        "command": "shwo",
        "option": "ls --limt 3",
        "run": "show stuby",
        "spec": "run project/wrong.toml",
        "no-file": "run project/nothing.toml",
        "agent": "run -t tasks/config-edit -a oracel",
        "task": "run -t tasks/nothing -a oracle",
        "experiment": "run specs/sorting.yaml --set experiment=sortign",
        "override": "run specs/sorting.yaml --set iterations.mesured=3",
        "kinds": "compare study sweep",
        "rule": "gate study --rules specs/sorting.yaml",
        "series": "history nothing",
        "cancel": "cancel study",
        "trial": "logs study 999",
        "format": "export study x --format xml",
        "import": "import specs",
        "verify": "verify specs/sorting.yaml",
        "replay": "replay sweep",
    }.items():
        camera.plain(f"read/wrong-{name}", *line.split())
