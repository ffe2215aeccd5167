import sys
import time

from lines import BUG, ask, judge, note, notes, serve


def store():
    kept = set(notes("keys"))

    def answer(verb, key=None):
        if verb == "put":
            kept.add(key)
            if BUG != "watchdog":
                note("keys", key)
        return " ".join(["ok", *kept])

    serve(answer)


match sys.argv[1:]:
    case ["serve"]:
        store()
    case ["write", key]:
        if not ask("paris-0", "put", key).startswith("ok"):
            sys.exit("not acknowledged")
        note("acknowledged", key)
    case ["check"]:
        while not (keys := ask("paris-0", "keys").split()):
            time.sleep(0.2)
        acknowledged = notes("acknowledged")
        judge([key for key in acknowledged if key not in keys], "acknowledged writes are lost", len(acknowledged))
