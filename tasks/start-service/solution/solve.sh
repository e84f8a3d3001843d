#!/bin/bash
set -e
cat > /app/start.sh <<'EOF'
#!/bin/bash
answers() { (exec 3<>/dev/tcp/127.0.0.1/8099) 2>/dev/null; }
if [ -f /app/service.pid ] && kill -0 "$(cat /app/service.pid)" 2>/dev/null && answers; then
  exit 0
fi
mkdir -p /app/state
PORT=8099 COUNT_FILE=/app/state/count setsid python3 /app/counter.py > /app/service.log 2>&1 < /dev/null &
echo $! > /app/service.pid
for _ in $(seq 100); do
  answers && exit 0
  sleep 0.1
done
exit 1
EOF
chmod +x /app/start.sh
