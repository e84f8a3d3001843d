"""What agents do to their own sandbox so that nobody can judge it: ideas, and an agent that tries one."""

# Scripts for the inside are kept whole.
# ruff: noqa: E501

from __future__ import annotations

import json
from pathlib import Path

from proctor.agents.base import AgentResult
from proctor.model.plan import PlannedTrial
from proctor.model.spec import SandboxSpec, Spec, TaskEntry
from proctor.model.trial import Lease
from proctor.store.blobs import open_blobs
from proctor.tasks.read import read_task
from proctor.trial.collect import Collector
from proctor.trial.task.prepare import Preparation
from proctor.trial.task.setting import TaskSetting
from proctor.trial.task_executor import TaskExecutor

PY = "python3 - <<'END'\nimport os, sys\n%s\nEND\n"
IDEAS = {
    "a name that is not UTF-8": "touch /app/$(printf '\\377') /logs/artifacts/$(printf 'a\\377b')",
    "a folder whose name is not UTF-8": "d=$(printf '/logs/artifacts/\\377\\376'); mkdir -p $d; echo x > $d/file",
    "names with line ends and escapes": "touch \"$(printf '/app/a\\nb')\" \"$(printf '/logs/artifacts/\\033[31mred')\"",
    "a link whose target is not UTF-8": "ln -s $(printf '\\377') /app/link",
    "the working folder replaced by a file": "cd /; rm -rf /app; echo x > /app",
    "the working folder replaced by a link": "cd /; rm -rf /app; ln -s /nowhere /app",
    "the working folder replaced by a loop": "cd /; rm -rf /app; ln -s /app /app",
    "the working folder deleted": "cd /; rm -rf /app",
    "the programs removed": "rm -rf /usr/bin /usr/lib /bin /lib 2>/dev/null; true",
    "everything in /usr removed": "rm -rf /usr 2>/dev/null; mv /usr /gone 2>/dev/null; true",
    "everything removed": "rm -rf --no-preserve-root / 2>/dev/null; true",
    "the shell removed": "rm -f /bin/sh /bin/bash /usr/bin/sh /usr/bin/bash /usr/bin/dash",
    "the shell replaced by nonsense": "cp /etc/hostname /tmp/x; for s in /bin/bash /usr/bin/bash; do rm -f $s; cp /tmp/x $s; chmod 755 $s; done",
    "the shell without its permission": "chmod 000 /bin/bash",
    "a loader that fails": "rm -f /lib64/ld-linux-x86-64.so.2 /lib/ld-* /usr/lib64/ld-linux-x86-64.so.2; true",
    "a preload that does not exist": "echo /nowhere/lib.so > /etc/ld.so.preload",
    "a preload that is a folder": "mkdir -p /etc/ld.so.preload",
    "a preload that crashes": "echo nonsense > /tmp/lib.so; echo /tmp/lib.so > /etc/ld.so.preload",
    "no accounts": "rm -f /etc/passwd /etc/group",
    "accounts that are nonsense": "head -c 4096 /dev/urandom > /etc/passwd; printf 'root:x:99999999999999:x' > /etc/group",
    "accounts that are a pipe": "rm -f /etc/passwd /etc/group; mkfifo /etc/passwd /etc/group",
    "accounts that are endless": "rm -f /etc/passwd; ln -s /dev/zero /etc/passwd",
    "the tests' folder a file": "rm -rf /tests; echo x > /tests",
    "the tests' folder a link": "rm -rf /tests; ln -s /proc /tests",
    "the tests' folder without permissions": "mkdir -p /tests; chmod 000 /tests",
    "the logs replaced by a file": "rm -rf /logs; echo x > /logs",
    "the logs replaced by a link": "rm -rf /logs; ln -s /proc/1 /logs",
    "the logs replaced by a pipe": "rm -rf /logs; mkfifo /logs",
    "the logs' folders replaced by pipes": "rm -rf /logs/*; mkfifo /logs/verifier /logs/artifacts /logs/agent",
    "the logs' folders replaced by links": "rm -rf /logs/*; ln -s / /logs/verifier; ln -s / /logs/artifacts",
    "pipes and devices to collect": "cd /logs/artifacts; mkfifo pipe; mknod null c 1 3; mknod disk b 7 0; python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('sock')\"; true",
    "long names": PY
    % "n = 'n' * 255\nfor top in ('/logs/artifacts', '/app'):\n    os.chdir(top)\n    for _ in range(15):\n        os.mkdir(n); os.chdir(n)\n    open('end', 'w').write('x')",
    "deep folders": PY
    % "for top in ('/logs/artifacts', '/app', '/tests'):\n    os.makedirs(top, exist_ok=True); os.chdir(top)\n    for _ in range(300):\n        os.mkdir('d'); os.chdir('d')",
    "folders without permissions": "mkdir -p /app/no/way /logs/artifacts/no/way; touch /app/no/way/x; chmod 000 /app/no /logs/artifacts/no /app",
    "a root without permissions": "chmod 000 /",
    "an immutable file": "touch /app/x; chattr +i /app/x /app 2>/dev/null; true",
    "a read-only root": "mount -o remount,ro / 2>/dev/null; mount --bind -o ro /tests /tests 2>/dev/null; true",
    "something mounted over the tests": "mkdir -p /tests; mount -t tmpfs none /tests 2>/dev/null; unshare -m true 2>/dev/null; true",
    "a huge sparse file": "truncate -s 1T /app/huge; truncate -s 900G /logs/artifacts/huge; truncate -s 200M /app/holes",
    "a large file": "head -c 300000000 /dev/zero > /app/large; true",
    "processes left behind": "for i in 1 2 3 4 5 6 7 8; do setsid sleep 1000 > /dev/null 2>&1 & done; true",
    "a fork bomb left behind": "(bomb() { bomb | bomb & }; bomb) > /dev/null 2>&1; sleep 0.3; true",
    "processes that ignore signals and fork": PY
    % "import signal\nfor each in range(1, 32):\n    try: signal.signal(each, signal.SIG_IGN)\n    except OSError: pass\nif os.fork() == 0:\n    os.setsid()\n    for fd in (0, 1, 2): os.close(fd)\n    while True:\n        if os.fork() == 0:\n            os._exit(0)\n        os.waitpid(-1, 0)",
    "everything killed": "kill -9 -1; kill -9 1; kill -STOP 1; true",
    "its supervisor stopped": "kill -STOP $PPID; kill -TERM $PPID; true",
    "more memory than allowed": PY % "x = bytearray(900_000_000)\nx[::4096] = b'x' * len(x[::4096])",
    "shared memory filled": "head -c 1000000000 /dev/zero > /dev/shm/x 2>/dev/null; true",
    "a disk limit reached": PY
    % "try:\n    with open('/app/full', 'wb') as file:\n        for _ in range(700): file.write(bytes(1 << 20))\nexcept OSError: pass",
    "links by the hundred": "ln -s loop2 /logs/artifacts/loop1; ln -s loop1 /logs/artifacts/loop2; for i in $(seq 200); do ln -s /etc/shadow /logs/artifacts/l$i; ln /app/x /app/h$i 2>/dev/null; done; true",
    "odd attributes": PY
    % "open('/app/x', 'w').close()\nfor name in ('user.x', 'user.overlay.opaque', 'trusted.overlay.opaque', 'user.overlay.redirect', 'security.capability'):\n    for path in ('/app/x', '/app', '/logs/artifacts'):\n        try: os.setxattr(path, name, b'y' * 1000)\n        except OSError: pass",
    "odd owners and times": PY
    % "for n, (uid, gid) in enumerate(((65534, 65534), (65535, 0), (1000, 1000))):\n    p = f'/app/f{n}'\n    open(p, 'w').close()\n    try: os.chown(p, uid, gid)\n    except OSError: pass\n    os.utime(p, (-2**40, 2**40)); os.chmod(p, 0o7777)\nos.utime('/app', (2**33, -2**33))",
    "an environment that stops every shell": "echo 'exit 0' > /etc/profile; echo 'exec sleep 1000' > /root/.bashrc; echo 'exit 0' > /etc/bash.bashrc",
    "a verifier that never ends": "mv /usr/bin/env /usr/bin/env.real 2>/dev/null; rm -f /app/answer; mkfifo /app/answer",
    "a reward that is nonsense": "echo not-a-number > /app/reward-to-copy",
    "white-out names": "touch /app/.wh.x /app/.wh..wh..opq /logs/artifacts/.wh.reward; mknod /app/gone c 0 0 2>/dev/null; true",
}
"""Each idea and the script that does it. The task asks for /app/answer; no script writes it."""
WHILE_TESTED = {
    "the tests killed": "kill -9 $PPID; kill -9 -1",
    "everything removed": "rm -rf --no-preserve-root / 2>/dev/null; true",
    "the rewards' folder a file": "rm -rf /logs/verifier; echo x > /logs/verifier",
    "the rewards' folder a pipe": "rm -rf /logs/verifier; mkfifo /logs/verifier",
    "the rewards' folder a link": "rm -rf /logs/verifier; ln -s /proc /logs/verifier",
    "the reward a pipe": "mkfifo /logs/verifier/reward.txt /logs/verifier/reward.json",
    "the reward a folder": "mkdir -p /logs/verifier/reward.txt/x /logs/verifier/reward.json/x",
    "the reward a device": "ln -s /dev/zero /logs/verifier/reward.json; mknod /logs/verifier/reward.txt c 1 5; true",
    "the reward too large": "truncate -s 3G /logs/verifier/reward.json",
    "the reward nonsense": "printf '{\"reward\": 1e400}' > /logs/verifier/reward.json",
    "the reward a number of thousands of digits": "printf '{\"reward\": %05000d}' 9 > /logs/verifier/reward.json",
    "the reward nested deeply": "head -c 200000 /dev/zero | tr '\\0' '[' > /logs/verifier/reward.json",
    "names that are not UTF-8": "touch /logs/verifier/$(printf '\377'); mkdir /logs/verifier/$(printf 'd\376'); touch /logs/verifier/$(printf 'd\376/\375')",
    "names that are too long": PY
    % "os.chdir('/logs/verifier'); n = 'n' * 255\nfor _ in range(15):\n    os.mkdir(n); os.chdir(n)\nopen('end', 'w').close()",
    "processes left behind": "setsid sleep 1000 > /dev/null 2>&1 & true",
    "the tests' time used up": "sleep 1000",
    "output without end": "timeout 2 yes",
    "the memory used up": PY % "x = bytearray(900_000_000)",
    "many files": PY % "for n in range(12_000): open(f'/logs/verifier/{n}', 'w').close()",
}
"""The same while the tests run: what they start of the agent's runs as root too."""
MANY = (
    PY
    % "for top in ('/logs/artifacts', '/app'):\n    os.makedirs(top + '/many', exist_ok=True)\n    for n in range(%d): open(f'{top}/many/{n}', 'w').close()"
)

TESTS = """#!/bin/bash
if [ -e /app/reward-to-copy ]; then cat /app/reward-to-copy > /logs/verifier/reward.txt; exit 0; fi
if [ "$(cat /app/answer 2>/dev/null)" = 42 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""
RUNNING_TESTS = """#!/bin/bash
sh /app/run
if [ "$(cat /app/answer 2>/dev/null)" = 42 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""
TOML = """schema_version = "1.4"
[verifier]
timeout_sec = 3
[agent]
timeout_sec = 40
[environment]
memory_mb = 400
storage_mb = 600
"""


class Hostile:
    """An agent that runs one script as root, and says how it ended."""

    name = "hostile"
    version = "1"

    def __init__(self, script: str, *, solve: bool = False) -> None:
        self.script = script
        self.solve = solve

    async def run(self, task, sandbox, model, context):
        if self.solve:
            await sandbox.exec(["sh", "-c", "echo 42 > /app/answer"], user="root")
        await sandbox.exec(["sh", "-c", self.script], user="root", timeout_s=30)
        return AgentResult()


def write_task(folder: Path, *, toml: str = TOML, tests: str = TESTS) -> Path:
    for name, text in {
        "task.toml": toml,
        "instruction.md": "Write 42 to /app/answer.",
        "tests/test.sh": tests,
        "environment/Dockerfile": "FROM debian:bookworm-slim\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


class Arena:
    """A run of one task on a real back end; each attempt is by another agent."""

    def __init__(self, folder: Path, backend, root, *, toml: str = TOML, tests: str = TESTS) -> None:
        self.folder = folder
        self.task = write_task(folder / "task", toml=toml, tests=tests)
        self.root = root
        self.backend = backend
        self.executor = self.begin()
        self._attempts = 0

    def begin(self) -> TaskExecutor:
        """An executor, as a process that starts or resumes the run has one."""

        async def make_root(task, environment=None):
            return self.root

        setting = TaskSetting(
            run_id="hostile",
            run_dir=self.folder / "run",
            sandbox=SandboxSpec(),
            backend=self.backend,
            make_root=make_root,
            collector=Collector(self.folder / "run", open_blobs(self.folder / "blobs")),
            given={},
            worker="w",
        )
        self.spec = Spec(name="s", tasks=(TaskEntry(path=str(self.task), agents=("command",)),))
        self.preparation = Preparation(self.spec, self.folder / "cache")
        return TaskExecutor(setting, self.preparation.plan)

    async def attempt(self, agent):
        """One attempt's record."""
        self._attempts += 1
        task = read_task(self.task)
        name = f"agent-{self._attempts}"
        self.preparation._agents[0, name] = agent
        trial = PlannedTrial(
            key=f"{self._attempts:064x}",
            index=self._attempts,
            kind="task",
            subject=task.name,
            subject_digest=task.digest,
            body=0,
            agent=name,
            path=str(self.task),
        )
        lease = Lease(
            run_id="hostile", key=trial.key, index=trial.index, worker="w", fence=1, attempt=1, expires_at=1.0
        )
        record = await self.executor.execute(trial, lease)
        json.dumps(record.to_mapping()).encode("utf-8")
        return record

    def controls(self) -> list[dict]:
        """The controls that were run, as a person finds them."""
        return [json.loads(each.read_text()) for each in self.folder.glob("run/controls/*/control.json")]

    async def close(self) -> None:
        await self.executor.controls.close()
        await self.executor._next_sandbox.close()
