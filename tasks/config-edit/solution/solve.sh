#!/bin/bash
set -e
awk '
  /^\[/ { section = $0 }
  section == "[server]" && /^port[ \t]*=/ { print "port = 8443"; next }
  section == "[server]" && /^tls[ \t]*=/  { print "tls  = on"; next }
  section == "[log]" && /^level[ \t]*=/   { print "level = warning"; next }
  { print }
' /app/server.ini > /tmp/server.ini
cat /tmp/server.ini > /app/server.ini
