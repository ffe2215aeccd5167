import http.server
import os
import sys
import time
import urllib.request

FILE = os.path.join(os.environ["FAULTLINE_DATA"], "notes")


class Notes(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def reply(self, text):
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        self.reply(b"healthy\n" if self.path == "/health" else open(FILE, "rb").read())

    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"]))
        with open(FILE, "ab") as file:
            file.write(text + b"\n")
        self.reply(b"stored\n")


def copy():
    """Copies the notes of the other server, which may not answer yet."""
    while True:
        try:
            with urllib.request.urlopen(f"http://{sys.argv[1]}:8080/", timeout=1) as answer:
                return answer.read()
        except OSError:
            time.sleep(0.2)


lost = os.environ["FAULTLINE_BOOT"] == "replaced"
notes = copy() if lost and os.environ["BUG"] != "lying-health" else b"notes\n" if not os.path.exists(FILE) else None
if notes is not None:
    with open(FILE, "wb") as file:
        file.write(notes)
http.server.ThreadingHTTPServer((os.environ["FAULTLINE_BIND"], 8080), Notes).serve_forever()
