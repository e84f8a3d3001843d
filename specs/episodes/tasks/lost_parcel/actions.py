"""What an agent can do: read the books of the depots, and report one."""

_ENV = None


def set_env(env):
    global _ENV
    _ENV = env


def read_book(depot: str) -> dict:
    path = f"/post/{depot}.txt"
    if not _ENV.exists(path):
        return {"ok": False, "error": "no_such_depot"}
    return {"ok": True, "book": _ENV.read_file(path)}


def report(key: str, value: str) -> dict:
    _ENV.set_agent_output(key, value)
    return {"ok": True}
