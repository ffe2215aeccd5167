"""A client of Redis for the models `register`, `set` and `queue`. It needs only Python.

    clients:
      items: { by: clients-0, command: [python3, redis.py], model: set, level: eventual }

It uses the node that `parameters: { node: paris-0 }` names, by default the first one. With `wait: 1`, a write counts as
done only once so many replicas have it; otherwise its effect is unknown.
"""

import json
import socket
import sys

CAS = """
local now = redis.call('get', KEYS[1])
if (ARGV[1] == '' and not now) or (now and now == ARGV[1]) then
  redis.call('set', KEYS[1], ARGV[2])
  return 1
end
return 0
"""


class Refused(Exception):
    """The server did not carry out the command."""


class Redis:
    def __init__(self, start):
        parameters = start["parameters"]
        hosts = {node["name"]: node["host"] for node in start["nodes"]}
        self.host = hosts[parameters.get("node", start["nodes"][0]["name"])]
        self.wait = parameters.get("wait", 0)
        self.timeout = start["timeout"] / 1000
        self.file = None

    def leave(self):
        self.file = None

    def ask(self, *words):
        if self.file is None:
            connection = socket.create_connection((self.host, 6379), timeout=self.timeout)
            self.file = connection.makefile("rwb")
        words = [str(word).encode() for word in words]
        self.file.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(it), it) for it in words))
        self.file.flush()
        return self.reply()

    def reply(self):
        line = self.file.readline()
        kind, rest = line[:1], line[1:-2]
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the connection was closed")
        if kind == b"-":
            raise Refused(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        return rest

    def change(self, *words):
        """Changes the data, and waits until enough replicas have the change."""
        answer = self.ask(*words)
        if self.wait:
            copies = self.ask("WAIT", self.wait, int(self.timeout * 500))
            if copies < self.wait:
                raise TimeoutError(f"only {copies} replicas have it")
        return answer

    def carry_out(self, event):
        match event["event"]:
            case "read" if "key" in event:
                found = self.ask("GET", event["key"])
                return None if found is None else int(found)
            case "read":
                return [int(it) for it in self.ask("SMEMBERS", "items")]
            case "write":
                self.change("SET", event["key"], event["value"])
            case "cas":
                before = "" if event["from"] is None else event["from"]
                return self.change("EVAL", CAS, 1, event["key"], before, event["to"]) == 1
            case "add":
                self.change("SADD", "items", event["value"])
            case "enqueue":
                self.change("RPUSH", "queue", event["value"])
            case "dequeue":
                found = self.change("LPOP", "queue")
                return None if found is None else int(found)


for line in sys.stdin:
    event = json.loads(line)
    reply = {"n": event["n"]}
    match event["event"]:
        case "hello":
            reply["contract"] = 1
        case "start":
            redis = Redis(event)
        case _:
            try:
                reply["ok"] = redis.carry_out(event)
            except (ConnectionRefusedError, Refused) as error:
                # Nothing was sent, or the server refused the command.
                reply["fail"] = str(error)
                redis.leave()
            except Exception as error:
                # The command may have taken effect, or may still take effect.
                reply["unknown"] = f"{type(error).__name__}: {error}"
                redis.leave()
    print(json.dumps(reply), flush=True)
