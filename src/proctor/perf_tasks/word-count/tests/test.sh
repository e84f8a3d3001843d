#!/bin/bash
if [ "$(cat /app/words.txt 2>/dev/null)" = "480" ]; then reward=1; else reward=0; fi
echo "$reward" > /logs/verifier/reward.txt
