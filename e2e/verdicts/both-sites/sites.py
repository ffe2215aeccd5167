import sys
import time

from lines import BUG, NAME, ask, background, judge, note, notes, serve

OTHER = {"paris-0": "rennes-0", "rennes-0": "paris-0"}


def site():
    def catch_up():
        """Copies what the other site has and this one has not."""
        while True:
            for key in ask(OTHER[NAME], "keys").split():
                if key not in notes("keys"):
                    note("keys", key)
            time.sleep(0.5)

    def answer(verb, key=None):
        if verb == "keys":
            return " ".join(notes("keys"))
        note("keys", key)
        if verb == "put" and ask(OTHER[NAME], "copy", key, timeout=0.5) != "ok" and BUG == "both-sites":
            return "no"
        return "ok"

    background(catch_up)
    serve(answer)


match sys.argv[1:]:
    case ["serve"]:
        site()
    case ["write", key]:
        if not any(ask(site, "put", key) == "ok" for site in OTHER):
            sys.exit("not acknowledged")
        note("acknowledged", key)
    case ["check"]:
        acknowledged = notes("acknowledged")
        for _ in range(40):
            keys = [ask(site, "keys").split() for site in OTHER]
            missing = [key for key in acknowledged if any(key not in there for there in keys)]
            if not missing:
                break
            time.sleep(0.5)
        judge(missing, "acknowledged writes are missing at one of the sites", len(acknowledged))
