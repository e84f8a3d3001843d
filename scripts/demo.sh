#!/usr/bin/env bash
# The main jobs, on this machine, with nothing but what setup installed.
set -euo pipefail
cd "$(dirname "$0")/.."
proctor="$PWD/.venv/bin/proctor"
export PROCTOR_HOME="$PWD/demo/.proctor" PROCTOR_OUTPUT_DIR="$PWD/demo/results" PROCTOR_ROLLOUTS_DIR="$PWD/demo/rollouts"
rm -rf demo
if [ -t 1 ]; then BOLD=$'\033[1m' PLAIN=$'\033[0m'; else BOLD='' PLAIN=''; fi
show() { # WHAT ARGUMENTS…: one line of what it is, then what proctor prints
  printf '\n%s%s:%s proctor %s\n' "$BOLD" "$1" "$PLAIN" "${*:2}"
  "$proctor" "${@:2}"
}

show "1. What can be measured here" list --experiments experiments.d

show "2. A sweep, two SQLite pragma profiles under two workloads" \
  run specs/pragma_profile_sweep.yaml --set 'sweep.profile=[performance, safety]' --set 'sweep.workload=[read-heavy, mixed]'

show "3. Two ways to encode JSON, measured in lockstep pairs" \
  ab specs/json_encode.yaml --a params:indent=null --b params:indent=2 || [ $? -eq 1 ]

if obstacle=$("$PWD/.venv/bin/python" -c 'from proctor.sandbox.userns import obstacle; print(obstacle())') && [ -z "$obstacle" ]; then
  show "4. Nine tasks in sandboxes, by the author's solution and by an agent that does nothing" run specs/sample_tasks.toml
else
  printf '\nSandboxes do not work here, so the rollouts are left out: %s\n' "$obstacle"
fi
