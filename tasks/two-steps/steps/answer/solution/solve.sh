#!/bin/bash
set -e
cut -d@ -f2 /app/clean.txt | LC_ALL=C sort | uniq -c | LC_ALL=C sort -k1,1nr -k2,2 |
  awk '{ print $2, $1 }' > /app/answer.txt
