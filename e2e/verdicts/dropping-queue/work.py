import collections
import itertools
import os
import sys
import time

from lines import BUG, LOCK, ask, background, judge, note, notes, path, say, serve


def queue():
    items = collections.deque(maxlen=10)

    def answer(verb, item=None):
        with LOCK:
            if verb == "put":
                if len(items) == items.maxlen and BUG != "dropping-queue":
                    return "full"
                items.append(item)
                return "ok"
            return items.popleft() if items else "empty"

    serve(answer)


def consumer():
    consumed = []

    def consume():
        while True:
            # An answer that is not read would be an item that is lost, so the consumer waits for it.
            item = ask("queue-0", "take", timeout=60)
            if item.isdigit():
                say("consumed", item)
                consumed.append(item)
            time.sleep(0.1)

    background(consume)
    serve(lambda *_: " ".join(["consumed", *consumed]))


def producer():
    for item in itertools.count():
        if os.path.exists(path("stop")):
            return time.sleep(600)
        if ask("queue-0", "put", item) == "ok":
            note("accepted", item)
        time.sleep(0.04)


def check():
    note("stop", "")
    time.sleep(4)
    accepted = notes("accepted")
    consumed = ask("consumers-0", "consumed", timeout=20)
    judge([item for item in accepted if item not in consumed.split()], "accepted items are lost", len(accepted))


{"queue": queue, "consumers": consumer, "producers": producer, "check": check}[sys.argv[1]]()
