#!/usr/bin/env bash
# The main jobs, on this machine, with nothing but what setup installed.
set -euo pipefail
cd "$(dirname "$0")/.."
proctor="$PWD/.venv/bin/proctor"
export PROCTOR_HOME="$PWD/demo/.proctor" PROCTOR_OUTPUT_DIR="$PWD/demo/results" PROCTOR_ROLLOUTS_DIR="$PWD/demo/rollouts"
rm -rf demo
if [ -t 1 ]; then BOLD=$'\033[1m' PLAIN=$'\033[0m'; else BOLD='' PLAIN=''; fi
step() { printf '\n%s%s%s\n' "$BOLD" "$*" "$PLAIN"; }
show() { printf '$ proctor %s\n' "$*"; "$proctor" "$@"; }
newest() { find "$1" -name report.html -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d' ' -f2; }

step "1. What can be measured here"
show list

step "2. A sweep: four SQLite pragma profiles under three workloads"
show run specs/pragma_profile_sweep.yaml

step "3. Two ways to encode JSON, measured in lockstep pairs"
show ab specs/json_encode.yaml --a params:indent=null --b params:indent=2 || [ $? -eq 1 ]

if obstacle=$("$PWD/.venv/bin/python" -c 'from proctor.sandbox.probe import obstacle; print(obstacle())') && [ -z "$obstacle" ]; then
  step "4. Nine tasks: the author's solution and an agent that does nothing, five rollouts each, in sandboxes"
  show run specs/sample_tasks.toml
else
  printf '\nSandboxes do not work here, so the rollouts are left out: %s\n' "$obstacle"
fi

step "5. What is stored"
show ls

step "Reports to look at"
printf '  the sweep:    %s\n' "$(newest demo/results)"
[ -d demo/rollouts ] && printf '  the rollouts: %s\n' "$(newest demo/rollouts)"
exit 0
