#!/bin/bash
if cmp -s /tests/wanted.txt /app/errors.txt; then reward=1; else reward=0; fi
echo "$reward" > /logs/verifier/reward.txt
