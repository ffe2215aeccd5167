import http.client
import http.server
import os
import sys
import threading
import time

DATA = os.environ["FAULTLINE_DATA"]
EVENTS = os.path.join(DATA, "events")
NUMBER = os.path.join(DATA, "number")


class Stream(http.server.BaseHTTPRequestHandler):
    """Sends each event as a chunk, for as long as the reader stays."""

    protocol_version = "HTTP/1.1"
    newest = 0

    def do_GET(self):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        sent = Stream.newest
        try:
            while True:
                while sent < Stream.newest:
                    sent += 1
                    text = f"event {sent} \n"
                    self.wfile.write(f"{len(text):x}\r\n{text}\r\n".encode())
                time.sleep(0.02)
        except OSError:
            pass


def produce():
    """Makes an event every 100 ms. Right: its number is stored before it can be sent."""
    kept = os.environ["BUG"] != "stream-restarts"
    if kept and os.path.exists(NUMBER):
        Stream.newest = int(open(NUMBER).read())
    while True:
        if kept:
            with open(NUMBER + ".new", "w") as file:
                file.write(str(Stream.newest + 1))
            os.replace(NUMBER + ".new", NUMBER)
        Stream.newest += 1
        time.sleep(0.1)


def server():
    threading.Thread(target=produce, daemon=True).start()
    http.server.ThreadingHTTPServer((os.environ["FAULTLINE_BIND"], 8080), Stream).serve_forever()


def reader():
    while True:
        try:
            connection = http.client.HTTPConnection(sys.argv[2], 8080, timeout=2)
            connection.request("GET", "/events")
            answer = connection.getresponse()
            while line := answer.readline():
                print(line.decode(), end="", flush=True)
                with open(EVENTS, "a") as events:
                    events.write(line.decode().split()[1] + "\n")
        except (OSError, http.client.HTTPException):
            time.sleep(0.1)


def check():
    numbers = [int(line) for line in open(EVENTS)]
    again = [after for before, after in zip(numbers, numbers[1:]) if after <= before]
    print(f"{len(numbers)} events, {len(again)} of them not above the one before: {again[:5]}")
    sys.exit(1 if again or not numbers else 0)


{"server": server, "readers": reader, "check": check}[sys.argv[1]]()
