#!/bin/bash
set -e
grep ' error ' /app/service.log | cut -d' ' -f1 | LC_ALL=C sort | uniq -c | sed -E 's/ *([0-9]+) (.*)/\2 \1/' > /app/errors.txt
