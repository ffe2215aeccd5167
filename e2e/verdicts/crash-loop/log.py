import json
import os
import sys
import time

from lines import BUG, LOCK, ask, judge, note, notes, path, say, serve


def recover():
    """Reads the log. Right: half a record at its end is removed."""
    text = open(path("log")).read() if os.path.exists(path("log")) else ""
    if BUG != "crash-loop":
        text = text[: text.rfind("\n") + 1]
        with open(path("log"), "w") as log:
            log.write(text)
    return [json.loads(line)["key"] for line in text.splitlines()]


def main():
    keys = recover()
    say(f"{len(keys)} records")

    def answer(verb, key=None):
        with LOCK:
            if verb == "put":
                with open(path("log"), "a") as log:
                    log.write('{"key": ')
                    log.flush()
                    say("writes", key)
                    time.sleep(0.8)
                    log.write(f'"{key}"}}\n')
                keys.append(key)
            return " ".join(["ok", *keys])

    serve(answer)


match sys.argv[1:]:
    case ["serve"]:
        main()
    case ["write", key]:
        if not ask("paris-0", "put", key, timeout=3).startswith("ok"):
            sys.exit("not acknowledged")
        note("acknowledged", key)
    case ["check"]:
        acknowledged = notes("acknowledged")
        keys = ask("paris-0", "keys", timeout=5).split()
        judge([key for key in acknowledged if key not in keys], "acknowledged records are lost", len(acknowledged))
