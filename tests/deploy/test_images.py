"""Images are built by podman from a wheel and run as an ordinary user; a worker in one makes sandboxes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deploy.terraform import ROOT

SOAK = bool(os.environ.get("PROCTOR_SOAK"))
STORED_FOLDER = """
from pathlib import Path
from proctor.store.blobs import FolderBlobs
from proctor.store.trees import get_tree, put_tree
here = Path("/tmp/kept")
blobs = FolderBlobs(here)
kept = put_tree(blobs, {"file": b"text"}, "n", here)
assert (get_tree(blobs, kept.digest, here / "cache") / "file").read_text() == "text"
"""
"""With the Python of the image, which is older than the one of these tests."""
LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")
pytestmark = [
    pytest.mark.fault,
    # Whether packages can be fetched is not asked for nothing.
    pytest.mark.needs("podman", "mmdebstrap", "registries")
    if SOAK
    else pytest.mark.skip(reason="takes minutes: PROCTOR_SOAK=1"),
    pytest.mark.timeout(1500),
]


def podman(*words: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run(["podman", *words], capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, f"podman {words}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout.strip()


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Target → image; on a base that is made here, because no registry is needed for the proof."""
    folder = tmp_path_factory.mktemp("images")
    mark = f"{os.getpid()}"
    base = f"localhost/proctor-test-base:{mark}"
    subprocess.run(
        ["mmdebstrap", "--quiet", "--variant=minbase", "bookworm", folder / "root.tar"], check=True
    )
    podman("import", folder / "root.tar", base)
    context = folder / "context"
    (context / "requirements").mkdir(parents=True)
    (context / "requirements/image.lock").write_bytes((ROOT / "requirements/image.lock").read_bytes())
    subprocess.run(
        [
            Path(sys.executable).parent / "uv",
            "build",
            "-q",
            "--wheel",
            "--no-build-isolation",
            "-o",
            context / "dist",
            ROOT,
        ],
        check=True,
    )
    options: list[str | Path] = []
    if certificates := os.environ.get("PIP_CERT"):  # of the house, where there is one
        (folder / "house.pem").write_bytes(Path(certificates).read_bytes())
        options = [
            "--volume",
            f"{folder}/house.pem:/run/house.pem:ro",
            "--build-arg",
            "PIP_CERT=/run/house.pem",
        ]
    made = {}
    try:
        for target in ("server", "worker"):
            made[target] = f"localhost/proctor-test-{target}:{mark}"
            podman(
                "build", "-q", "--network", "host", "--isolation", "oci", *LIMITS, "--pull=never",
                "--layers=false", "--force-rm", "--format", "docker",
                "--build-arg", f"BASE={base}", *options, "--target", target, "-t", made[target],
                "-f", ROOT / "deploy/images/Containerfile", context,
            )  # fmt: skip
        yield made
    finally:
        for each in (*made.values(), base):
            subprocess.run(["podman", "rmi", "-f", each], capture_output=True, check=False)


def run(image: str, *words: str, options: tuple[str, ...] = ()) -> str:
    return podman("--runtime", "runc", "run", "--rm", "--network", "none", *LIMITS, *options, image, *words)


@pytest.mark.parametrize("target", ["server", "worker"])
def test_an_image_is_not_root_and_has_all_extras(images, target):
    assert run(images[target], "--version")
    assert run(images[target], "-u", options=("--entrypoint", "id")) == "10001"
    program = "import celery, obstore, psycopg, redis, opentelemetry; import proctor.server.app"
    run(images[target], "-c", program, options=("--entrypoint", "python3"))
    run(images[target], "-c", STORED_FOLDER, options=("--entrypoint", "python3"))
    described = podman("image", "inspect", images[target])
    assert '"Healthcheck"' in described


def test_a_worker_makes_sandboxes_with_the_rights_that_the_page_lists(images):
    rights = ("--security-opt", "seccomp=unconfined", "--security-opt", "unmask=ALL", "--cap-drop", "ALL")
    mapping = ("--cap-add", "SETUID", "--cap-add", "SETGID", "--read-only", "--tmpfs", "/tmp")
    said = run(images["worker"], "doctor", "--json", options=(*rights, *mapping))
    assert "started, used and stopped" in said
    assert "started, used and stopped" not in run(images["worker"], "doctor", "--json", options=rights)
    assert "started, used and stopped" not in run(images["worker"], "doctor", "--json")
