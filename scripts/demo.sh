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

  # A model that follows a script, as a real server beside the gateway: free, offline, and metered like any other.
  "$proctor" provider --script specs/replies/config-edit.toml > demo/provider.txt &
  provider=$!
  trap 'kill "$provider"' EXIT
  until [ -s demo/provider.txt ]; do sleep 0.1; done
  export PROCTOR_MODEL_BASE_URL="$(cat demo/provider.txt)/v1" PROCTOR_PRICES=specs/replies/prices.toml
  show "5. An agent with a model and a shell, its calls counted by the gateway and kept on a tape" \
    run -t tasks/config-edit -a terminal -m scripted --host-root --set budget_usd=0.10
  show "6. The same agent again, answered from the tape: no model is asked" replay config-edit
else
  printf '\nSandboxes do not work here, so the rollouts are left out: %s\n' "$obstacle"
fi

printf '\n%sAll of it on a page, where new runs are started and watched live:%s\n  PROCTOR_HOME=demo/.proctor .venv/bin/proctor serve --open\n' "$BOLD" "$PLAIN"
