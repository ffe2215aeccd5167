import sys
import time

from lines import BUG, LOCK, NAME, ask, insist, judge, note, notes, say, serve


def lock():
    """Each holder gets a higher token than the one before."""
    state = {"holder": None, "until": 0.0, "token": 0}

    def answer(verb, worker):
        with LOCK:
            now = time.monotonic()
            if verb == "release" and state["holder"] == worker:
                state["until"] = now
            elif verb == "take" and now >= state["until"]:
                state.update(holder=worker, until=now + 1.5, token=state["token"] + 1)
                return state["token"]
            return "no"

    serve(answer)


def file():
    def answer(_, token):
        with LOCK:
            newest = max(map(int, notes("writes")), default=0)
            if int(token) < newest and BUG != "lock-held-by-two":
                return "refused"
            note("writes", token)
            return "ok"

    serve(answer)


def worker():
    while True:
        if (token := ask("lock-0", "take", NAME)).isdigit():
            say("holds", token)
            for _ in range(3):
                time.sleep(0.3)
                if insist("file-0", "write", token, until=["ok", "refused"]) == "refused":
                    break
            ask("lock-0", "release", NAME)
        time.sleep(0.2)


def check():
    tokens = [int(token) for token in notes("writes")]
    older = [f"{after} after {before}" for before, after in zip(tokens, tokens[1:]) if after < before]
    judge(older, "writes follow that of a newer holder", len(tokens))


{"lock": lock, "file": file, "workers": worker, "check": check}[sys.argv[1]]()
