#!/bin/bash
set -e
tr 'A-Z' 'a-z' < /app/addresses.txt | sed 's/^[ \t]*//; s/[ \t]*$//' |
  grep -E '^[^@[:space:]]+@[^@[:space:]]+\.[^@[:space:]]+$' | LC_ALL=C sort -u > /app/clean.txt
