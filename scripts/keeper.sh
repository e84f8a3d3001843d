#!/usr/bin/env bash
# Build the keeper for each processor that it ships for, with the pinned zig; the same source gives the same bytes.
#   keeper.sh                 build, and note the digests of sources and programs beside them
#   keeper.sh --check [x86_64|aarch64 ...]   build elsewhere, and fail where what is committed differs
set -euo pipefail
cd "$(dirname "$0")/.."
processors=(x86_64 aarch64)
source=src/proctor/sandbox/init
built=$source/built
tools=$PWD/build/zig

if [ ! -f "$tools/.stamp" ] || ! cmp -s "$tools/.stamp" requirements/keeper.lock; then
  rm -rf "$tools"
  "${PYTHON:-python3}" -m venv "$tools"
  "$tools/bin/python" -m pip install -q --disable-pip-version-check --require-hashes -r requirements/keeper.lock
  cp requirements/keeper.lock "$tools/.stamp"
fi

build() { # processor, program
  ZIG_GLOBAL_CACHE_DIR=$tools/cache ZIG_LOCAL_CACHE_DIR=$tools/cache "$tools/bin/python" -m ziglang cc \
    -target "$1-linux-musl" -O2 -std=gnu11 -Wall -Werror -static -s -Wl,--build-id=none -o "$2" "$source"/*.c
}

if [ "${1:-}" = --check ]; then
  shift
  made=$(mktemp -d)
  trap 'rm -rf "$made"' EXIT
  for processor in "${@:-${processors[@]}}"; do
    build "$processor" "$made/keeper-$processor"
    cmp "$made/keeper-$processor" "$built/keeper-$processor" || {
      echo "keeper: $built/keeper-$processor is not what its source gives; run 'make keeper' and commit it"
      exit 1
    }
    echo "keeper: $built/keeper-$processor is what its source gives"
  done
  exit
fi

mkdir -p "$built"
for processor in "${processors[@]}"; do
  build "$processor" "$built/keeper-$processor"
  chmod 755 "$built/keeper-$processor"
done
(cd "$source" && LC_ALL=C sha256sum -- *.[ch] built/keeper-* >built/SHA256SUMS)
ls -l "$built"
