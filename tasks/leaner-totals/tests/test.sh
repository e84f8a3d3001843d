#!/bin/bash
# Right on small files.
reward=1
check() {
  printf "$1" > /tmp/sales.csv
  found=$(python3 /app/totals.py /tmp/sales.csv | tr '\n' ';')
  if [ "$found" != "$2" ]; then
    echo "for '$1' it printed '$found' instead of '$2'"
    reward=0
  fi
}
check '' ''
check 'b,5\n' 'b 5;'
check 'b,5\na,1\nb,2\n' 'a 1;b 7;'
check 'z,0\ny,10\nx,100\ny,-1' 'x 100;y 9;z 0;'
echo "$reward" > /logs/verifier/reward.txt
