#!/bin/bash
# The hidden tests pass; the agent's own tests pass on the new module and fail on the old one.
export PYTHONDONTWRITEBYTECODE=1
reward=0
old=$(mktemp -d)
cp /tests/old_stats.py "$old/stats.py"
cp /app/test_stats.py "$old/"
if python3 -m pytest -q -p no:cacheprovider /tests/hidden.py &&
   (cd /app && python3 -m pytest -q -p no:cacheprovider test_stats.py) &&
   ! (cd "$old" && python3 -m pytest -q -p no:cacheprovider test_stats.py); then
  reward=1
fi
echo "$reward" > /logs/verifier/reward.txt
