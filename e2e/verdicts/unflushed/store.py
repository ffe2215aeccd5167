import sys
import time

from lines import BUG, LOCK, ask, judge, note, notes, path, serve


def store():
    kept = notes("keys")
    file = open(path("keys"), "a")

    def answer(verb, key=None):
        with LOCK:
            if verb == "put":
                kept.append(key)
                file.write(f"{key}\n")
                if BUG != "unflushed":
                    file.flush()
                sys.stdout.write(f"\x1b[32mINFO\x1b[0m stored {len(kept)}\r\n")
                sys.stdout.flush()
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
