#!/bin/bash
# Right on small inputs, some of them odd.
reward=1
check() {
  found=$(printf "$1" | python3 /app/busiest.py)
  if [ "$found" != "$2" ]; then
    echo "for '$1' it printed '$found' instead of '$2'"
    reward=0
  fi
}
check '' '0 0'
check '7\n' '1 7'
check '0\n599\n600\n' '2 0'
check '1000\n0\n1000\n999\n' '3 999'
check '5\n5\n5\n700\n701\n' '3 5'
echo "$reward" > /logs/verifier/reward.txt
