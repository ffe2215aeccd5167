"""Start again: after any failure, every process returns to its initial state."""
import json, sys

class StartAgain:
    def __init__(self, start):
        self.accepts_stale = start["parameters"].get("acceptsStale", False)
        self.incarnation, self.running, self.early = 0, False, []
    def handle(self, event, act):
        match event["event"]:
            case "start" | "membership":
                self.update(event["membership"]["members"], act)
            case "sent":
                act("transmit", id=event["id"], position=[self.incarnation, 0], stamp=self.incarnation)
            case "received":
                self.arrived(event["id"], event["stamp"], event["payload"], act)
    def update(self, members, act):
        failures = sum(max(it["life"] + (not it["up"]) - 1, 0) for it in members)
        if failures > self.incarnation:
            self.incarnation, self.running = failures, False
            act("restore", image=None, incarnation=failures)
            act("claim", fact="rolledBack", to=[failures, 0], checkpoint=[0, 0], cause="failure")
        if not self.running and all(it["up"] for it in members):  # a message to a process that is down is lost
            self.running = True
            act("release")
            early, self.early = self.early, []
            for message in early:
                self.arrived(*message, act)
    def arrived(self, id, stamp, payload, act):
        if stamp < self.incarnation and not self.accepts_stale:
            act("dropStale", id=id)
        elif stamp > self.incarnation or not self.running:
            self.early.append((id, stamp, payload))
        else:
            act("deliver", id=id, payload=payload)

for line in sys.stdin:
    event = json.loads(line)
    reply = {"n": event["n"]}
    if event["event"] == "hello":
        reply["contract"] = 1
    else:
        if event["event"] == "start":  # a new life: nothing of an earlier one may remain
            process = StartAgain(event)
        reply["do"] = actions = []
        process.handle(event, lambda do, **fields: actions.append({"do": do, **fields}))
    print(json.dumps(reply), flush=True)
