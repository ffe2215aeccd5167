import itertools
import sys
import time

from lines import BUG, LOCK, ask, background, judge, note, notes, say, serve

STATE = {"keys": set(), "leads": False, "heard": time.monotonic() + 5}


def first():
    """Leads until it hears that the second one does. Then it only copies."""
    STATE["leads"] = True

    def follow():
        while True:
            if (keys := ask("rennes-0", "beat", timeout=0.5)).startswith("leader"):
                with LOCK:
                    STATE.update(leads=False, keys=set(keys.split()[1:]))
            time.sleep(0.2)

    def answer(verb, key=None):
        with LOCK:
            if verb == "keys":
                return " ".join(["keys", *STATE["keys"]])
            if not STATE["leads"]:
                return "no"
            STATE["keys"].add(key)
        copied = ask("rennes-0", "copy", key, timeout=0.5) == "ok"
        return "ok" if copied or BUG == "split-brain" and STATE["leads"] else "no"

    background(follow)
    serve(answer)


def second():
    """Follows until it has heard nothing for a second and a half. Then it leads for good."""

    def lead():
        while time.monotonic() < STATE["heard"] + 1.5:
            time.sleep(0.1)
        with LOCK:
            STATE["leads"] = True
        say("rennes-0 takes over")

    def answer(verb, key=None):
        with LOCK:
            if verb in ("beat", "copy"):
                STATE["heard"] = time.monotonic()
            if verb == "beat":
                return " ".join(["leader" if STATE["leads"] else "follower", *STATE["keys"]])
            if (verb == "copy") == STATE["leads"]:
                return "no"
            STATE["keys"].add(key)
            return "ok"

    background(lead)
    serve(answer)


def client():
    for key in itertools.count():
        if any(ask(server, "put", key, timeout=2) == "ok" for server in ["paris-0", "rennes-0"]):
            note("acknowledged", key)
        time.sleep(0.2)


def check():
    """Looks for what had been acknowledged when the check began; the first one copies it within a moment."""
    acknowledged = notes("acknowledged")
    for _ in range(8):
        time.sleep(0.5)
        keys = ask("paris-0", "keys").split()
        lost = [key for key in acknowledged if key not in keys]
        if not lost:
            break
    judge(lost, "acknowledged writes are lost", len(acknowledged))


{"paris-0": first, "rennes-0": second, "clients-0": client, "check": check}[sys.argv[1]]()
