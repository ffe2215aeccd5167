"""Services that exchange lines over TCP: a line is a request, and the line that follows is its answer."""

import os
import socket
import socketserver
import threading
import time

BUG = os.environ.get("BUG", "none")
NAME = os.environ["FAULTLINE_NAME"]
BOOT = os.environ["FAULTLINE_BOOT"]
HOSTS = dict(node.split("=") for node in os.environ["FAULTLINE_NODES"].split(","))
PORT = 7000
LOCK = threading.RLock()


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128


def serve(answer):
    """Answers each line with what `answer` returns for its words. `None` closes the connection without an answer."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            try:
                for line in self.rfile:
                    reply = answer(*line.decode().split())
                    if reply is None:
                        return
                    self.wfile.write(f"{reply}\n".encode())
            except OSError:
                pass  # The peer has closed the connection.

    Server((os.environ["FAULTLINE_BIND"], PORT), Handler).serve_forever()


def ask(node, *words, timeout=1.0):
    """Returns the answer of a node, or an empty string if it does not answer in time."""
    try:
        with socket.create_connection((HOSTS[node], PORT), timeout) as connection:
            connection.settimeout(timeout)
            connection.sendall((" ".join(map(str, words)) + "\n").encode())
            line = connection.makefile().readline()
            return line.strip() if line.endswith("\n") else ""
    except OSError:
        return ""


def insist(node, *words, until, pause=0.1):
    """Asks until the answer is in `until`. Each attempt has a connection of its own."""
    while (answer := ask(node, *words)) not in until:
        time.sleep(pause)
    return answer


def background(work):
    threading.Thread(target=work, daemon=True).start()


def path(file):
    return os.path.join(os.environ["FAULTLINE_DATA"], file)


def note(file, line):
    """Adds a line to a file among the node's data."""
    with open(path(file), "a") as out:
        out.write(f"{line}\n")
        out.flush()
        os.fsync(out.fileno())


def notes(file):
    """Returns the lines of a file among the node's data."""
    try:
        with open(path(file)) as lines:
            return lines.read().splitlines()
    except FileNotFoundError:
        return []


def say(*words):
    print(*words, flush=True)


def judge(wrong, what, of):
    """Ends a check: prints what is wrong, and fails if there is any or if nothing was judged."""
    say(f"{len(wrong)} of {of} {what}: {' '.join(map(str, wrong[:5]))}")
    raise SystemExit(1 if wrong or not of else 0)
