import os
import sys
import time

from lines import BUG, ask, background, say, serve

OTHER = sys.argv[1]


def watch():
    heard = False
    while True:
        answers = ask(OTHER, "there") == "yes"
        if heard and not answers:
            say(OTHER, "does not answer")
            if BUG == "cascade":
                os.abort()
        heard = heard or answers
        time.sleep(0.2)


background(watch)
serve(lambda *_: "yes")
