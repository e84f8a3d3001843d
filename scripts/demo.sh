#!/usr/bin/env bash
# The main job, on this machine, with nothing but what setup installed.
set -euo pipefail
cd "$(dirname "$0")/.."
proctor="$PWD/.venv/bin/proctor"
export PROCTOR_HOME="$PWD/demo/.proctor" PROCTOR_OUTPUT_DIR="$PWD/demo/results"
rm -rf demo
step() { printf '\n\033[1m%s\033[0m\n' "$*"; }
show() { printf '$ proctor %s\n' "$*"; "$proctor" "$@"; }

step "1. What can be measured here"
show list

step "2. A sweep: four SQLite pragma profiles under three workloads"
show run specs/pragma_profile_sweep.yaml

step "3. Two versions of one function, measured in lockstep pairs"
show ab specs/json_encode.yaml --a params:indent=null --b params:indent=2 || [ $? -le 1 ]

step "4. What is stored"
show ls

printf '\nThe report of the sweep: %s\n' "$(find "$PWD/demo/results" -name report.html | sort | tail -n 1)"
