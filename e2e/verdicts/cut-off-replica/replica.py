import sys
import time

from lines import BUG, ask, background, judge, note, notes, serve


def primary():
    """Counts ten times per second."""
    state = {"count": 0}

    def count():
        while True:
            time.sleep(0.1)
            state["count"] += 1

    background(count)
    serve(lambda *_: state["count"])


def replica():
    """Right: it answers only with a copy that was asked for less than a second ago."""
    state = {"count": "", "asked": 0.0}

    def follow():
        while True:
            asked = time.monotonic()
            if count := ask("paris-0", "count", timeout=0.5):
                state.update(count=count, asked=asked)
            time.sleep(0.1)

    def answer(*_):
        fresh = time.monotonic() < state["asked"] + 1
        return state["count"] if fresh or BUG == "cut-off-replica" else "no"

    background(follow)
    serve(answer)


def client():
    while True:
        primary = ask("paris-0", "count")
        replica = ask("rennes-0", "count")
        if primary.isdigit() and replica.isdigit():
            note("counts", f"{primary} {replica}")
        time.sleep(0.2)


def check():
    counts = [tuple(map(int, line.split())) for line in notes("counts")]
    behind = [f"{replica}<{primary}" for primary, replica in counts if replica < primary - 30]
    judge(behind, "answers of the replica are too old", len(counts))


{"paris-0": primary, "rennes-0": replica, "clients-0": client, "check": check}[sys.argv[1]]()
