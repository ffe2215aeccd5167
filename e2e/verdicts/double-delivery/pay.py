import sys
import time

from lines import BUG, LOCK, insist, judge, note, notes, say, serve

JOBS = [str(job) for job in range(10)]


def queue():
    def answer(verb, job=None):
        if verb == "confirm":
            note("confirmed", job)
            return "ok"
        confirmed = notes("confirmed")
        return next((job for job in JOBS if job not in confirmed), "empty")

    serve(answer)


def account():
    def answer(_, job):
        with LOCK:
            if BUG == "double-delivery" or job not in notes("payments"):
                note("payments", job)
        return "ok"

    serve(answer)


def worker():
    while (job := insist("queue-0", "take", until=JOBS + ["empty"])) != "empty":
        insist("account-0", "pay", job, until=["ok"])
        say("paid", job)
        time.sleep(0.5)
        insist("queue-0", "confirm", job, until=["ok"])


def check():
    payments = notes("payments")
    judge([job for job in JOBS if payments.count(job) != 1], "jobs are not paid once", len(JOBS))


{"queue": queue, "account": account, "workers": worker, "check": check}[sys.argv[1]]()
