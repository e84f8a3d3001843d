import os
import signal
import subprocess
import time
import urllib.request


def ask(path: str, method: str = "GET") -> int:
    request = urllib.request.Request(f"http://127.0.0.1:8099{path}", method=method)
    with urllib.request.urlopen(request, timeout=5) as answer:
        return int(answer.read())


def pid() -> int:
    with open("/app/service.pid") as file:
        return int(file.read())


def start() -> None:
    subprocess.run(["/app/start.sh"], check=True, timeout=15, stdin=subprocess.DEVNULL)


start()
assert ask("/count") == 0
assert ask("/add", "POST") == 1
first = pid()
start()
assert pid() == first, "a running service was started again"
os.kill(first, signal.SIGKILL)
deadline = time.monotonic() + 5
while time.monotonic() < deadline:
    try:
        ask("/count")
    except OSError:
        break
start()
assert pid() != first
assert ask("/count") == 1, "the number was lost"
os.kill(pid(), signal.SIGKILL)
print("all checks passed")
