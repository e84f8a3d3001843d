"""The server over the saved world: what every GET route answers."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import world
from world import Camera, parsed

HEADERS = ("content-type", "cache-control", "content-disposition", "link", "location")
QUIET_S = 1.0
"""How long a stream of events may be silent before it counts as complete."""
MISSING = "missing"


def ask(
    address: str,
    path: str,
    method: str = "GET",
    body: Any = None,
    *,
    request: urllib.request.Request | None = None,
) -> dict[str, Any]:
    """One request: status, headers that matter and the body."""
    if request is None:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            address + path, data, {"Content-Type": "application/json"}, method=method
        )
    opener = urllib.request.build_opener(_Stay)
    try:
        with opener.open(request, timeout=QUIET_S if is_stream(path) else 60) as answer:
            return _answer(method, path, answer, answer.status)
    except urllib.error.HTTPError as error:
        return _answer(method, path, error, error.code)


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Where a redirection leads is part of the answer."""


def is_stream(path: str) -> bool:
    """Whether the answer never ends by itself."""
    return path.startswith("/api/events") or "/follow" in path


def _answer(method: str, path: str, answer: Any, status: int) -> dict[str, Any]:
    headers = {name: answer.headers[name] for name in HEADERS if name in answer.headers}
    text = _read(answer).decode(errors="replace")
    return {
        "request": f"{method} {path}",
        "status": status,
        "headers": headers,
        "body": parsed(text) if text else "",
    }


def _read(answer: Any) -> bytes:
    parts = b""
    try:
        while part := answer.read1(65536):
            parts += part
    except TimeoutError:  # a stream that has nothing more to say
        pass
    return parts


def photograph(camera: Camera) -> None:
    """Every GET route of the description, with the ids of what is in the store."""
    with world.background("serve", "--port", "0") as address:
        description = ask(address, "/openapi.json")["body"]
        camera.write_json("static/openapi-served.json", description)
        rooms = Ids(address)
        for route, methods in sorted(description["paths"].items()):
            if "get" in methods:
                for name, path in rooms.requests(route, methods["get"]):
                    camera.write_json(f"read/api/{name}.json", ask(address, path))
        page = ask(address, "/")
        camera.write_json("read/api/page.json", {"status": page["status"], "headers": page["headers"]})
        env = {"PROCTOR_URL": address}
        for command in (
            "ls",
            "show study",
            "summarize study",
            "logs study 0",
            "compare study~1 study",
            "queue",
        ):
            camera.both(f"read/remote/{command.replace(' ', '-')}", *command.split(), env=env)


class Ids:
    """What can be put into the braces of a route, and after its question mark."""

    def __init__(self, address: str) -> None:
        self.address = address
        runs = ask(address, "/api/runs?limit=100")["body"]["items"]
        newest_last = sorted(runs, key=lambda run: run["created_at"])
        self.runs = {run["name"]: run["id"] for run in newest_last}

    def requests(self, route: str, operation: dict[str, Any]) -> list[tuple[str, str]]:
        """Name and path of every request of a route."""
        needed = [
            item["name"]
            for item in operation.get("parameters", ())
            if item["in"] == "query" and item.get("required")
        ]
        stem = route.strip("/").replace("/", ".")
        if "{run}" in route:
            requests = [
                (f"{stem}/{name}{suffix}", path)
                for name, run in [*self.runs.items(), (MISSING, MISSING)]
                for suffix, path in self._of_run(route.replace("{run}", run), needed)
            ]
            return [(name.replace("{", "").replace("}", ""), path) for name, path in requests]
        queries = self._queries(route, needed)
        filled = self._filled(route)
        return [
            (f"{stem}{at or ''}".replace("{", "").replace("}", ""), filled + query)
            for at, query in enumerate(queries)
        ]

    def _of_run(self, route: str, needed: list[str]) -> list[tuple[str, str]]:
        if "{index}" not in route:
            return [("", route)]
        requests = []
        for index in (0, 1, 999):
            path = route.replace("{index}", str(index))
            run = path.split("/")[3]
            if "{name}" in path:
                logs = ask(self.address, f"/api/trials/{run}/{index}/logs")["body"]
                names = [log["name"] for log in _rows(logs, "logs")] or [MISSING]
                paths = [path.replace("{name}", urllib.parse.quote(name, safe="")) for name in names]
            else:
                paths = [path]
            query = self._trial_query(run, index, needed)
            requests += [
                (f"-{index}-{at}" if at else f"-{index}", item + query) for at, item in enumerate(paths)
            ]
        return requests

    def _trial_query(self, run: str, index: int, needed: list[str]) -> str:
        if "path" in needed:
            files = _rows(ask(self.address, f"/api/trials/{run}/{index}/files")["body"], "files")
            path = next((item["path"] for item in files if item.get("path")), MISSING)
            return "?" + urllib.parse.urlencode({"path": path})
        if "other" in needed:
            return "?other=1"
        return "?q=e" if "q" in needed else ""

    def _queries(self, route: str, needed: list[str]) -> list[str]:
        study, agents, sweep = (self.runs.get(name, MISSING) for name in ("study", "agents", "sweep"))
        special = {
            "/api/compare": [f"?a={study}&b={agents}", f"?a={sweep}&b={sweep}", "?a=study&b=nothing", ""],
            "/api/history": ["?series=sweep", "?series=study", "?series=nothing", ""],
            "/api/leaderboard": [f"?run={study}&run={agents}", f"?run={study}&these_tasks=true", ""],
            "/api/runs": [
                "",
                "?q=study",
                "?status=done&limit=2",
                "?kind=task&sort=name",
                "?sort=wrong",
                "?limit=0",
            ],
            "/api/certificates": ["", "?kind=vet"],
            "/api/queue": ["", "?slots=8"],
            "/api/costs": ["", "?by=model", "?by=wrong"],
            "/api/events": ["", f"?run={study}"],
        }
        return special.get(route, ["?" + "&".join(f"{name}=x" for name in needed) if needed else ""])

    def _filled(self, route: str) -> str:
        lists = {"timings": "name", "tasks": "id", "uploads": "id", "schedules": "id", "projects": "id"}
        for noun, key in lists.items():
            if route.startswith(f"/api/{noun}/{{"):
                rows = _rows(ask(self.address, f"/api/{noun}")["body"], noun)
                first = str(next((row[key] for row in rows if row.get(key)), MISSING)) if rows else MISSING
                route = re.sub(r"\{[a-z]+\}", urllib.parse.quote(first, safe=""), route, count=1)
        if "{rid}" in route:
            task = route.split("/")[3]
            rows = _rows(ask(self.address, f"/api/tasks/{task}/runs")["body"], "runs")
            route = route.replace("{rid}", str(rows[0].get("id", MISSING)) if rows else MISSING)
        return re.sub(r"\{[a-z]+\}", MISSING, route)


def _rows(body: Any, noun: str) -> list[dict[str, Any]]:
    """The list of an answer: itself, under its noun, or the only list in it."""
    if isinstance(body, list):
        return body
    if not isinstance(body, dict):
        return []
    lists = [value for value in body.values() if isinstance(value, list)]
    rows = body.get(noun, lists[0] if lists else [])
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
