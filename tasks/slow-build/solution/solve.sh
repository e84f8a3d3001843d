#!/bin/bash
set -e
cat > /app/Makefile <<'EOF'
PARTS := $(sort $(wildcard src/*.part))
OBJECTS := $(PARTS:src/%.part=out/%.o)

all: out/program

out/program: $(OBJECTS)
	cat $(OBJECTS) > $@.tmp
	mv $@.tmp $@

out/%.o: src/%.part src/common.inc | out
	bin/compile $< $@

out:
	mkdir -p out

clean:
	rm -rf out

.PHONY: all clean
EOF
cd /app
make -s clean
make -s -j4
