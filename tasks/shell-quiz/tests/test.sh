#!/bin/bash
# reward.json: one entry per filter, and their mean as the reward.
check() { # name input wanted
  local got
  got=$(printf "$2" | timeout 5 "/app/filters/$1" 2>&1; echo .)
  [ "$got" = "$(printf "$3"; echo .)" ]
}
longest() { check longest 'a\nbbb\ncc\nddd\n' 'bbb\n' && check longest 'one\n' 'one\n'; }
unique() { check unique 'b\na\nb\nc\na\n' 'b\na\nc\n'; }
sum() { check sum 'a 1 b-3 22x\n7\n' '27\n' && check sum 'none\n' '0\n'; }
columns() { check columns 'a\tb\tc\nx\ty\nalone\n' 'b\ta\tc\ny\tx\nalone\n'; }
wrap() { check wrap 'the quick brown fox jumps\nover\n' 'the quick brown fox\njumps\nover\n' &&
  check wrap 'a aaaaaaaaaaaaaaaaaaaaaaaaa b\n' 'a\naaaaaaaaaaaaaaaaaaaaaaaaa\nb\n'; }
right=0
parts=""
for name in longest unique sum columns wrap; do
  if "$name"; then value=1; else value=0; fi
  right=$((right + value))
  parts="$parts, \"$name\": $value"
done
echo "{\"reward\": 0.$((right * 2))$parts}" | sed 's/0\.10,/1.0,/' > /logs/verifier/reward.json
