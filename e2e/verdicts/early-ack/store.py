import sys
import threading

from lines import BUG, ask, judge, note, notes, serve


def answer(verb, key=None):
    if verb == "keys":
        return " ".join(notes("keys"))
    note("keys", key)
    if verb == "put":
        if BUG == "early-ack":
            threading.Timer(2, ask, ("rennes-0", "copy", key)).start()
        elif ask("rennes-0", "copy", key) != "ok":
            return "no"
    return "ok"


match sys.argv[1:]:
    case ["serve"]:
        serve(answer)
    case ["write", key]:
        if ask("paris-0", "put", key) != "ok":
            sys.exit("not acknowledged")
        note("acknowledged", key)
    case ["check"]:
        keys = ask("rennes-0", "keys", timeout=10).split()
        acknowledged = notes("acknowledged")
        judge([key for key in acknowledged if key not in keys], "acknowledged writes are lost", len(acknowledged))
