#!/usr/bin/env bash
# Make ready what a job needs: setup.sh [run|dev|bench] [system-package ...]
# Idempotent: a second call finds the stamp and does nothing. Never prompts.
set -euo pipefail
cd "$(dirname "$0")/.."
level=${1:-run}
shift || true

say() { printf 'setup: %s\n' "$*"; }

python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  say "Python 3.11 or later is needed; $("$python" --version 2>&1) was found. Set PYTHON=/path/to/python3.11."
  exit 2
}

install_system() {
  local missing=()
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    say "not root: tests that need these are skipped by name. To run them: sudo apt-get install ${missing[*]}"
    return 0
  fi
  say "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get -o DPkg::Lock::Timeout=300 -qq update >/dev/null
  apt-get -o DPkg::Lock::Timeout=300 -qq -y --no-install-recommends install "${missing[@]}" >/dev/null || {
    say "could not install ${missing[*]}; tests that need them are skipped by name"
  }
}

install_python() {
  local lock="requirements/$level.lock" stamp=".venv/.stamp-$level" digest
  digest=$(cat "$lock" requirements/bootstrap.lock pyproject.toml scripts/setup.sh | sha256sum | cut -d' ' -f1)
  # A richer environment serves a poorer job.
  for richer in "$level" dev bench; do
    [ "$level" = bench ] && [ "$richer" = dev ] && continue
    [ -f ".venv/.stamp-$richer" ] && [ "$(cat ".venv/.stamp-$richer")" = "$(cat "requirements/$richer.lock" requirements/bootstrap.lock pyproject.toml scripts/setup.sh | sha256sum | cut -d' ' -f1)" ] && return 0
  done
  [ -x .venv/bin/python ] || { say "creating .venv with $("$python" --version)"; "$python" -m venv .venv; }
  .venv/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/bootstrap.lock 2>/dev/null ||
    .venv/bin/python -m pip install --disable-pip-version-check --require-hashes -r requirements/bootstrap.lock
  say "installing the pinned packages of $lock"
  # Whom the machine trusts, as its other tools do: a registry may be behind a certificate of the house.
  export UV_SYSTEM_CERTS=${UV_SYSTEM_CERTS:-true}
  .venv/bin/uv pip install -q --compile-bytecode --python .venv/bin/python --require-hashes -r "$lock"
  .venv/bin/uv pip install -q --compile-bytecode --python .venv/bin/python --no-deps --no-build-isolation -e .
  rm -f .venv/.stamp-*
  printf '%s' "$digest" >"$stamp"
}

[ $# -gt 0 ] && install_system "$@"
install_python
say "ready ($level)"
