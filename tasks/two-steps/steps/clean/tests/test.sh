#!/bin/bash
if diff /tests/wanted.txt /app/clean.txt; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
