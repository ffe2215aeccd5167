import itertools
import sys
import time

from lines import BUG, LOCK, NAME, ask, background, judge, note, notes, say, serve

SERVERS = ["servers-0", "servers-1"]


def database():
    state = {"primary": None, "heard": 0.0, "value": 0}

    def answer(verb, server, value=None):
        with LOCK:
            now = time.monotonic()
            if state["primary"] != server and now < state["heard"] + 1:
                return "no"
            state.update(primary=server, heard=now)
            if verb == "write":
                state["value"] = int(value)
            return state["value"]

    serve(answer)


def server():
    state = {"primary": False, "value": 0}

    def remember(value):
        if value.isdigit():
            state["value"] = int(value)
            if not state["primary"]:
                say("primary")
        # Right: a server that was refused is no longer the primary.
        if value.isdigit() or BUG != "stale-read":
            state["primary"] = value.isdigit()
        return "ok" if value.isdigit() else "no"

    def seek():
        while True:
            remember(ask("database-0", "read", NAME))
            time.sleep(0.2)

    def answer(verb, value=None):
        if verb == "write":
            return remember(ask("database-0", "write", NAME, value))
        if BUG != "stale-read":
            remember(ask("database-0", "read", NAME))
        return state["value"] if state["primary"] else "no"

    background(seek)
    serve(answer)


def client():
    """Writes to the first server that accepts it, then reads from both."""
    written = 0
    for value in itertools.count(1):
        if any(ask(server, "write", value) == "ok" for server in SERVERS):
            written = value
        for server in SERVERS:
            if (read := ask(server, "read")).isdigit():
                note("reads", f"{server} {written} {read}")
        time.sleep(0.1)


def check():
    reads = [line.split() for line in notes("reads")]
    stale = [f"{server}:{read}<{written}" for server, written, read in reads if int(read) < int(written)]
    judge(stale, "reads are stale", len(reads))


{"database": database, "servers": server, "clients": client, "check": check}[sys.argv[1]]()
