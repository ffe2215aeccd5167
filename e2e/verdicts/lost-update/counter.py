import http.client
import http.server
import os
import sys
import threading
import time
import urllib.parse

BUG = os.environ["BUG"]
FILE = os.path.join(os.environ["FAULTLINE_DATA"], "counter")
LOCK = threading.Lock()


class Counter(http.server.BaseHTTPRequestHandler):
    """Keeps connections open. A version is the value itself, because the counter only grows."""

    protocol_version = "HTTP/1.1"

    def value(self):
        return open(FILE).read() if os.path.exists(FILE) else "0"

    def reply(self, status, text):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self):
        with LOCK:
            self.reply(200, self.value())

    def do_PUT(self):
        value = self.rfile.read(int(self.headers["Content-Length"])).decode()
        with LOCK:
            if self.headers["If-Match"] not in (None, self.value()):
                return self.reply(412, "changed")
            with open(FILE + ".new", "w") as file:
                file.write(value)
            os.replace(FILE + ".new", FILE)
        print("the counter is", value, flush=True)
        self.reply(200, value)

    def log_message(self, *_):
        pass


def increment(connection):
    connection.request("GET", "/")
    value = connection.getresponse().read().decode()
    time.sleep(0.01)
    condition = {} if BUG == "lost-update" else {"If-Match": value}
    connection.request("PUT", "/", str(int(value) + 1), condition)
    answer = connection.getresponse()
    answer.read()
    return answer.status == 200


def client(address):
    connection = http.client.HTTPConnection(address, timeout=2)
    added = 0
    while added < 60:
        try:
            added += increment(connection)
        except (OSError, http.client.HTTPException):
            connection.close()  # The next request connects again.
            time.sleep(0.1)


def server():
    http.server.ThreadingHTTPServer((os.environ["FAULTLINE_BIND"], 8080), Counter).serve_forever()


server() if sys.argv[1] == "server" else client(urllib.parse.urlsplit(sys.argv[2]).netloc)
