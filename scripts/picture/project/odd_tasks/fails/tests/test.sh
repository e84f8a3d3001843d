#!/bin/bash
grep -q yes /app/solved && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
