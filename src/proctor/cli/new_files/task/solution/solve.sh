#!/bin/bash
# The oracle runs this. It proves that the task can be done.
set -e
awk -F, 'NR > 1 { sum[$2] += $3 } END { for (each in sum) printf "%s,%d\n", each, sum[each] }' \
  /app/ledger.csv | sort > /app/totals.csv
