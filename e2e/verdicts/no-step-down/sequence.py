import sys
import time

from lines import BUG, LOCK, NAME, ask, background, judge, note, notes, say, serve


def arbiter():
    state = {"leader": None, "heard": 0.0, "number": 0}

    def answer(verb, server, number=None):
        with LOCK:
            now = time.monotonic()
            if state["leader"] != server and now < state["heard"] + 1:
                return "no"
            if verb == "took" and state["leader"] != server:
                return "no"
            state.update(leader=server, heard=now)
            if verb == "took":
                state["number"] = int(number)
            return state["number"]

    serve(answer)


def server():
    state = {"leads": False, "number": 0}

    def lead():
        while True:
            if not state["leads"]:
                number = ask("arbiter-0", "lead", NAME)
                if number.isdigit():
                    with LOCK:
                        state.update(leads=True, number=int(number))
                    say("leads from", number)
            elif ask("arbiter-0", "lead", NAME) == "no" and BUG != "no-step-down":
                with LOCK:
                    state["leads"] = False
            time.sleep(0.2)

    def answer(_):
        with LOCK:
            if not state["leads"]:
                return "no"
            state["number"] += 1
            if ask("arbiter-0", "took", NAME, state["number"]).isdigit():
                return state["number"]
            if BUG == "no-step-down":
                return state["number"]
            state["leads"] = False
            return "no"

    background(lead)
    serve(answer)


def client():
    while True:
        for server in ["servers-0", "servers-1"]:
            if (number := ask(server, "next")).isdigit():
                say("number", number)
                note("numbers", number)
        time.sleep(0.1)


def check():
    numbers = notes("numbers")
    twice = sorted({number for number in numbers if numbers.count(number) > 1}, key=int)
    judge(twice, "numbers are handed out twice", len(numbers))


{"arbiter": arbiter, "servers": server, "clients": client, "check": check}[sys.argv[1]]()
