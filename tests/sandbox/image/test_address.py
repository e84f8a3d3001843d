"""ADD of addresses, from a server of the test's own on loopback."""

from __future__ import annotations

import hashlib
import http.server
import threading
from collections.abc import Iterator

import pytest

from proctor.errors import ImageError
from proctor.sandbox.base import RootOptions
from proctor.sandbox.image.address import fetch, file_name
from proctor.sandbox.image.layered import LayeredImages

pytestmark = [pytest.mark.anyio]

CONTENT = b"fetched content\n" * 1000


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        if self.path.startswith(("/moved", "/loop")):
            self.send_response(302)
            again = "/loop" if self.path == "/loop" else "/tool.tar.gz"
            self.send_header("Location", self.path.partition("?")[2] or again)
            self.end_headers()
        elif self.path.startswith("/missing"):
            self.send_error(404)
        else:
            self.send_response(200)
            cut = self.path.startswith("/cut")
            self.send_header("Content-Length", str(len(CONTENT) * (2 if cut else 1)))
            self.end_headers()
            self.wfile.write(CONTENT)

    def log_message(self, *_: object) -> None:
        pass


class Served:
    """A running server."""

    def __init__(self, server: http.server.ThreadingHTTPServer) -> None:
        self.port = server.server_address[1]
        self.asked: list[str] = server.asked  # type: ignore[attr-defined]

    def at(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"


@pytest.fixture
def served() -> Iterator[Served]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.asked = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield Served(server)
        server.shutdown()
        thread.join()


@pytest.fixture
def allowed(backend, images_dir) -> LayeredImages:
    options = RootOptions(host_root=True, network_allow=("127.0.0.1",))
    return LayeredImages(images_dir, backend, options)


@pytest.mark.needs("bubblewrap")
async def test_a_file_is_fetched_once_and_not_unpacked(served, allowed, make_task, look, backend, images_dir):
    found = hashlib.sha256(CONTENT).hexdigest()
    text = (
        f"FROM x\nADD {served.at('/moved')} /in/moved\n"
        f"ADD --checksum=sha256:{found} --chmod=755 --chown=33:44 "
        f"{served.at('/tool.tar.gz?token=secret')} /in/\n"
    )
    task = make_task(text)
    root = await allowed.root(task)
    assert await look(root, "cd /in; stat -c %n:%U:%g:%a *; sha256sum * | cut -c1-64 | sort -u") == (
        f"moved:root:0:600\ntool.tar.gz:www-data:44:755\n{found}"
    )
    asked = len(served.asked)
    again = LayeredImages(images_dir, backend, RootOptions(host_root=True, network_allow=("127.0.0.1",)))
    assert await again.root(task) == root
    assert len(served.asked) == asked, "what was built is not fetched again"


@pytest.mark.needs("bubblewrap")
async def test_a_build_names_the_line_and_hides_what_may_be_secret(served, images, allowed, make_task):
    text = f"FROM x\nADD {served.at('/a?token=secret')} /a\n"
    with pytest.raises(
        ImageError, match=r"Dockerfile:2: ADD: .*127\.0\.0\.1 is not an address of the"
    ) as caught:
        await images.root(make_task(text))
    assert "secret" not in str(caught.value)
    assert served.asked == []
    wrong = f"FROM x\nADD --checksum=sha256:{'0' * 64} {served.at('/a')} /a\n"
    with pytest.raises(
        ImageError, match=r"Dockerfile:2: .*has the checksum sha256:[0-9a-f]{64}, not sha256:000"
    ):
        await allowed.root(make_task(wrong))
    with pytest.raises(ImageError, match="the address names no file"):
        await allowed.root(make_task(f"FROM x\nADD {served.at('/')} /a/\n", name="other"))


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/missing", "the server answers 404"),
        ("/cut", "could not be fetched|ended after"),
        ("/moved?http://169.254.169.254/latest", r"169\.254\.169\.254 is not an address of the internet"),
        ("/moved?file:///etc/passwd", "not http or https"),
        ("/loop", "more than 10 redirects"),
    ],
)
async def test_what_goes_wrong_is_said(served, tmp_path, path, said):
    with pytest.raises(ImageError, match=said):
        await fetch(served.at(path), tmp_path / "f", allow=("127.0.0.1",), where="D:1")


async def test_names_that_lead_to_this_machine_are_refused_unless_they_are_allowed(served, tmp_path):
    address = served.at("/x", host="localhost")
    with pytest.raises(ImageError, match="localhost is not an address of the internet"):
        await fetch(address, tmp_path / "f", allow=(), where="D:1")
    found = await fetch(address, tmp_path / "f", allow=("localhost",), where="D:1")
    assert found == hashlib.sha256(CONTENT).hexdigest()
    with pytest.raises(ImageError, match="more than 5 bytes"):
        await fetch(address, tmp_path / "f", allow=("localhost",), where="D:1", most_bytes=5)


@pytest.mark.parametrize("host", ["①②⑦.0.0.1", "127。0。0。1", "127.1", "0x7f.1", "[::ffff:127.0.0.1]"])
async def test_an_address_of_this_machine_is_refused_however_it_is_written(served, tmp_path, host):
    with pytest.raises(ImageError, match=r"is not an address of the internet|canonical"):
        await fetch(served.at("/x", host=host), tmp_path / "f", allow=(), where="D:1")
    moved = served.at(f"/moved?{served.at('/x', host=host)}", host="localhost")
    with pytest.raises(ImageError, match="could not be fetched"):
        await fetch(moved, tmp_path / "f", allow=("localhost",), where="D:1")
    assert "/x" not in served.asked


async def test_a_file_is_named_after_the_end_of_its_address():
    assert file_name("https://h/a/b%20c.tar?x=1#y") == "b c.tar"
    assert file_name("https://h/a/") == file_name("https://h") == file_name("https://h/a/..%2f") == ""
