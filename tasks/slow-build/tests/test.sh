#!/bin/bash
cd /app || exit 0
reward=0
compiled() { wc -l < compile.log; }
step() { : > compile.log; make -s -j4 > /dev/null; }
make -s clean
if [ ! -e out ] &&
   step && diff /tests/wanted out/program && [ "$(compiled)" -eq 12 ] &&
   step && [ "$(compiled)" -eq 0 ] &&
   touch -d '+2 seconds' src/part03.part && step && [ "$(compiled)" -eq 1 ] &&
   touch -d '+4 seconds' src/common.inc && step && [ "$(compiled)" -eq 12 ] &&
   diff /tests/wanted out/program; then
  reward=1
fi
echo "$reward" > /logs/verifier/reward.txt
