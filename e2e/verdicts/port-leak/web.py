import http.server
import os
import subprocess

served = 0


class Web(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global served
        served += 1
        if served == 5:
            print("out of memory", flush=True)
            os._exit(1)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"a page\n")


server = http.server.HTTPServer((os.environ["FAULTLINE_BIND"], 8080), Web)
leaks = os.environ["BUG"] == "port-leak"
server.socket.set_inheritable(leaks)
subprocess.Popen(["sleep", "60"], close_fds=not leaks)
server.serve_forever()
