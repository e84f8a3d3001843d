"""Git repositories over HTTP on loopback, as real servers offer them, and as bad ones do."""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

BACKEND = Path("/usr/lib/git-core/git-http-backend")
TASK = {
    "task.toml": 'schema_version = "1.4"\n[task]\nname = "org/{name}"\n'
    '[environment]\nnetwork_mode = "no-network"\n',
    "instruction.md": "Do it.\n",
    "environment/Dockerfile": "FROM debian:bookworm-slim\n",
    "tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n",
    "solution/solve.sh": "#!/bin/bash\ntrue\n",
}


def git(folder: Path, *words: str) -> str:
    """Run git as nobody in particular."""
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def write_task(folder: Path, files: Mapping[str, str] | None = None) -> Path:
    """A small task, with more files."""
    for name, text in {**TASK, **(files or {})}.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text.replace("{name}", folder.name))
    (folder / "solution/solve.sh").chmod(0o755)
    return folder


def commit_all(folder: Path, message: str = "tasks") -> str:
    """Commit everything in a work tree; the commit."""
    if not (folder / ".git").exists():
        git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")


@dataclass
class GitServer:
    """Serves the repositories and files below a folder."""

    folder: Path
    password: str = ""
    """`name:password` that every request must have."""
    cuts: int = 0
    """How many answers with objects are cut off in the middle."""
    down: bool = False
    smart: bool = True
    reached: threading.Event = field(default_factory=threading.Event)
    """Set when objects are asked for while `held` is there."""
    held: threading.Event | None = None
    """Objects are sent only after this is set."""
    requests: list[str] = field(default_factory=list)
    authorizations: list[str] = field(default_factory=list)
    url: str = ""

    def fetches(self) -> int:
        """How often objects were asked for."""
        return sum("git-upload-pack" in each and each.startswith("POST") for each in self.requests)


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[GitServer]:
    """Serve while the block lasts."""
    server = GitServer(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _answer(self, server)

        do_POST = do_GET  # noqa: N815 - the library's name

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        server.url = f"http://127.0.0.1:{http.server_address[1]}"
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()


def _answer(handler: BaseHTTPRequestHandler, server: GitServer) -> None:
    path, _, query = handler.path.partition("?")
    length = int(handler.headers.get("Content-Length") or 0)
    body = handler.rfile.read(length) if length else _chunks(handler)
    server.requests.append(f"{handler.command} {handler.path}")
    server.authorizations.append(handler.headers.get("Authorization", ""))
    expected = f"Basic {base64.b64encode(server.password.encode()).decode()}"
    if server.down:
        handler.send_error(503)
    elif server.password and handler.headers.get("Authorization") != expected:
        handler.send_response(401)
        handler.send_header("WWW-Authenticate", 'Basic realm="tasks"')
        handler.send_header("Content-Length", "0")
        handler.end_headers()
    elif ".git" not in path or not server.smart:
        _file(handler, server.folder / path.lstrip("/"))
    else:
        _smart(handler, server, path, query, body)


def _chunks(handler: BaseHTTPRequestHandler) -> bytes:
    """A body without a length comes in pieces."""
    body = b""
    if handler.headers.get("Transfer-Encoding") == "chunked":
        while size := int(handler.rfile.readline(), 16):
            body += handler.rfile.read(size)
            handler.rfile.readline()
        handler.rfile.readline()
    return body


def _file(handler: BaseHTTPRequestHandler, file: Path) -> None:
    if not file.is_file():
        handler.send_error(404)
        return
    content = file.read_bytes()
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


def _smart(handler: BaseHTTPRequestHandler, server: GitServer, path: str, query: str, body: bytes) -> None:
    environment: Mapping[str, str] = {
        "PATH": os.environ["PATH"],
        "GIT_PROJECT_ROOT": str(server.folder),
        "GIT_HTTP_EXPORT_ALL": "1",
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "REQUEST_METHOD": handler.command,
        "CONTENT_TYPE": handler.headers.get("Content-Type", ""),
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_CONTENT_ENCODING": handler.headers.get("Content-Encoding", ""),
        "GIT_PROTOCOL": handler.headers.get("Git-Protocol", ""),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }
    if server.held and handler.command == "POST":
        server.reached.set()
        server.held.wait(60)
    done = subprocess.run([BACKEND], input=body, env=environment, capture_output=True, check=False)
    head, _, content = done.stdout.partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().splitlines())
    handler.send_response(int(headers.pop("Status", "200").split()[0]))
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    if server.held and handler.command == "POST":
        return  # whoever asked is gone by now
    if server.cuts and b"PACK" in content:
        server.cuts -= 1
        handler.wfile.write(content[: len(content) // 2])
        handler.close_connection = True
        handler.connection.close()
        return
    handler.wfile.write(content)
