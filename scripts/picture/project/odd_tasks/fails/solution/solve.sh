#!/bin/bash
echo "cannot do it" >&2; exit 3
