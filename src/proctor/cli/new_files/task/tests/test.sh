#!/bin/bash
# Runs as root when the agent has gone. What is in /logs/verifier/reward.txt afterwards is the reward:
# 1 passes, 0 fails, anything between is partial.
if diff /tests/totals.csv /app/totals.csv && diff /tests/ledger.csv /app/ledger.csv; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
