import itertools
import sys
import time

from lines import BUG, LOCK, NAME, ask, background, judge, note, notes, say, serve

LEASE, TICK = 4.0, 0.1


def arbiter():
    state = {"leader": None, "until": 0.0, "epoch": 0}

    def answer(_, server):
        with LOCK:
            now = time.monotonic()
            if state["leader"] != server:
                if now < state["until"]:
                    return "no"
                state.update(leader=server, epoch=state["epoch"] + 1)
            state["until"] = now + LEASE
            return state["epoch"]

    serve(answer)


def server():
    state = {"epoch": "", "until": 0.0, "ticks": 0}

    def now():
        return state["ticks"] * TICK if BUG == "tick-lease" else time.monotonic()

    def lead():
        for ticks in itertools.count():
            state["ticks"] = ticks
            if ticks % 20 == 0:
                asked = now()
                if (epoch := ask("arbiter-0", "lead", NAME)).isdigit():
                    state.update(epoch=epoch, until=asked + LEASE)
                    say("leader", epoch)
                else:
                    state["until"] = 0.0
            time.sleep(TICK)

    def answer(_):
        return state["epoch"] if now() < state["until"] else "no"

    background(lead)
    serve(answer)


def client():
    while True:
        for server in ["servers-0", "servers-1"]:
            if (epoch := ask(server, "epoch", timeout=0.5)).isdigit():
                note("epochs", epoch)
        time.sleep(0.05)


def check():
    epochs = [int(epoch) for epoch in notes("epochs")]
    older = [f"{after} after {before}" for before, after in zip(epochs, epochs[1:]) if after < before]
    judge(older, "answers came after that of the successor", len(epochs))


{"arbiter": arbiter, "servers": server, "clients": client, "check": check}[sys.argv[1]]()
