#!/bin/bash
if cmp -s /tests/wanted.ini /app/server.ini; then reward=1; else reward=0; fi
echo "$reward" > /logs/verifier/reward.txt
