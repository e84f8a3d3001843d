#!/bin/bash
# The wanted file, compared with runs of blanks folded, so that any way of aligning is fine.
fold() { tr -s ' \t' ' ' < "$1"; }
if diff <(fold /tests/wanted.ini) <(fold /app/server.ini); then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
