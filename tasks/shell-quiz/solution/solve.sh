#!/bin/bash
set -e
mkdir -p /app/filters && cd /app/filters
cat > longest <<'EOF'
#!/bin/sh
awk 'length($0) > best || NR == 1 { best = length($0); line = $0 } END { if (NR) print line }'
EOF
cat > unique <<'EOF'
#!/bin/sh
awk '!seen[$0]++'
EOF
cat > sum <<'EOF'
#!/bin/sh
grep -oE -- '-?[0-9]+' | awk '{ total += $1 } END { printf "%d\n", total }'
EOF
cat > columns <<'EOF'
#!/bin/sh
awk -F '\t' -v OFS='\t' 'NF > 1 { first = $1; $1 = $2; $2 = first } { print }'
EOF
cat > wrap <<'EOF'
#!/bin/sh
awk '{
  line = ""
  for (at = 1; at <= NF; at++) {
    if (line == "") line = $at
    else if (length(line) + 1 + length($at) <= 20) line = line " " $at
    else { print line; line = $at }
  }
  print line
}'
EOF
chmod +x longest unique sum columns wrap
