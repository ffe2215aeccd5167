"""BCS, an index-based protocol: a port of the Rust crate examples/bcs, which explains the rules and their reasons."""
import json, re, sys

ANY = 2**32 - 1  # the report of a process that can continue from its current state
NEVER = 2**64 - 1
UNITS = {"us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}

def nanoseconds(text):
    if text in ("never", "infinite"):
        return None
    value, unit = re.fullmatch(r"([\d.]+)([a-z]+)", text).groups()
    return round(float(value) * UNITS[unit])

def epoch_of(members):
    return sum(max(it["life"] + (not it["up"]) - 1, 0) for it in members)

class Bcs:
    def __init__(self, start):
        self.every = nanoseconds(start["parameters"].get("checkpointEvery", "2s"))
        self.no_forcing = start["parameters"].get("defect") == "noForcing"
        self.me, self.members = start["me"], start["membership"]["members"]
        self.epoch, self.incarnation, self.index = epoch_of(self.members), 0, 0
        self.phase, self.target, self.part = "starting", None, None
        self.reports, self.prepared_by = {}, {}
        self.bound, self.has_run, self.is_replaced = None, False, start["boot"] == "replaced"
        self.taking, self.next_checkpoint, self.write_again = None, NEVER, NEVER
        self.log, self.delivered = [], {}  # delivered: by sender, [all below this number, numbers beyond it]
        self.waiting, self.early = [], []
        self.stored, self.contents, self.unsaved = {}, {}, []
        self.rollbacks, self.record = start["record"] or [], 0
        self.stable_by, self.collections = {}, 0

    def handle(self, event, act):
        self.act, self.now = act, event["now"]
        match event["event"]:
            case "start":
                if event["boot"] == "fresh":
                    self.take(1, False)
                else:
                    act("list")
                return  # a process takes no other step before its first input
            case "sent":
                self.sent(event["id"], event["payload"])
            case "received":
                self.received((event["id"], event["stamp"], event["payload"]))
            case "message":
                self.message(event["from"], event["message"])
            case "snapshot":
                self.snapshot(event["snapshot"])
            case "persisted":
                self.persisted(event["name"])
            case "persistFailed":
                if self.is_being_written(event["name"]):
                    self.write_again = self.now + 100 * 10**6
            case "listed":
                self.listed([it["name"] for it in event["images"]])
            case "read":
                part = {"name": event["name"], "saved": event["saved"]} if event["found"] else None
                self.read(event["name"], part)
            case "recorded":
                if event["version"] == self.record and self.phase == "recording":
                    self.prepared(self.target, self.part)
            case "membership":
                self.membership(event["membership"]["members"])
            case "timeout":
                self.timeout()
        self.proceed()

    def wake(self):
        checkpoint = self.next_checkpoint if self.may_take() else NEVER
        return min(checkpoint, self.write_again)

    # --- failure-free operation ---

    def position(self, index):
        return [self.incarnation, index]

    def name(self, index):
        return [self.me, self.incarnation, index, 1]

    def broadcast(self, kind, **fields):
        for rank in range(len(self.members)):
            if rank != self.me:
                self.act("send", to=rank, kind=kind, message={"kind": kind, "epoch": self.epoch, **fields})

    def transmit(self, id, payload):
        self.act("transmit", id=id, payload=payload, position=self.position(self.index),
                 stamp={"epoch": self.epoch, "index": self.index})

    def sent(self, id, payload):
        self.log.append([id, payload])
        if self.phase == "running":
            self.transmit(id, payload)

    def received(self, message):
        id, stamp, payload = message
        if stamp["epoch"] < self.epoch:
            return  # unless its send was undone, its sender re-sends it
        if stamp["epoch"] > self.epoch or self.phase != "running" or self.taking:
            self.waiting.append(message)
            return
        below, beyond = self.delivered.get(id[0], [0, set()])
        if id[3] < below or id[3] in beyond:
            return
        if stamp["index"] > self.index and not self.no_forcing:
            self.act("claim", fact="forcing", id=id)
            self.take(stamp["index"], True)
            self.waiting.append(message)
            return
        beyond.add(id[3])
        while below in beyond:
            beyond.remove(below)
            below += 1
        self.delivered[id[0]] = [below, beyond]
        self.act("deliver", id=id, payload=payload)

    def deliver_waiting(self):
        waiting, self.waiting = self.waiting, []
        for message in waiting:
            self.received(message)

    def take(self, index, forced):
        self.act("claim", fact="checkpointRequested", position=self.position(index), attempt=1, forced=forced)
        self.taking = (index, forced, self.now)
        self.act("requestSnapshot")

    def snapshot(self, snapshot):
        (index, forced, since), self.taking = self.taking, None
        delivered = [[sender, below, sorted(beyond)] for sender, (below, beyond) in sorted(self.delivered.items())]
        saved = {"log": list(self.log), "delivered": delivered}
        part = {"name": self.name(index), "forced": forced, "frozen": self.now - since,
                "saved": saved, "snapshot": snapshot, "written": False}
        self.index = index
        self.schedule()
        self.act("keep", snapshot=snapshot)
        self.unsaved.append(part)
        if len(self.unsaved) == 1:
            self.write()
        if self.phase == "running":
            self.act("release")
            self.deliver_waiting()

    def write(self):
        part = self.unsaved[0]
        if part["written"]:
            self.act("persist", image=part["name"])
            return
        part["written"] = True
        self.act("persist", name=part["name"], head={"forced": part["forced"]}, saved=part["saved"],
                 savedBytes=0, snapshot=part["snapshot"])  # it contains no messages
        self.act("keep", image=part["name"])
        self.act("forget", snapshot=part["snapshot"])

    def schedule(self):
        self.next_checkpoint = NEVER if self.every is None else self.now + self.every

    def is_being_written(self, name):
        return bool(self.unsaved) and self.unsaved[0]["name"] == name

    def persisted(self, name):
        if not self.is_being_written(name):
            self.act("delete", name=name)  # a rollback has undone it
            return
        part = self.unsaved.pop(0)
        self.write_again = NEVER
        if self.unsaved:
            self.write()
        self.act("claim", fact="checkpointCommitted", position=name[1:3], attempt=1, forced=part["forced"],
                 frozen=part["frozen"])
        self.stored[name[2]] = name
        self.contents[name[2]] = part["saved"]["delivered"]
        if not self.is_started():
            if self.is_replaced:
                self.act("held")
            self.act("started")
        if self.phase == "running":
            self.announce_stable()
        elif self.phase == "fetching" and self.first_from(self.target) == name:
            return self.decide(self.target, part)
        self.act("forget", image=name)

    def is_started(self):
        return self.members[self.me]["started"]

    def has_checkpoint(self):
        return self.index > 0 and bool(self.stored)

    def may_take(self):
        waits = self.phase == "starting" and self.bound is None and self.has_checkpoint()
        return self.taking is None and (waits or self.phase == "running")

    def timeout(self):
        if self.now >= self.write_again:
            self.write_again = NEVER
            if self.unsaved:
                self.write()
        if self.may_take() and self.now >= self.next_checkpoint:
            self.take(self.index + 1, False)

    def announce_stable(self):
        if self.stored:
            index = max(self.stored)
            self.stable(self.me, index)
            self.broadcast("stable", index=index)

    def stable(self, process, index):
        self.stable_by[process] = index
        if len(self.stable_by) < len(self.members):
            return
        least = min(self.stable_by.values())
        oldest = min((it for it in self.stored if it >= least), default=None)
        removed = sorted(it for it in self.stored if oldest is not None and it < oldest)
        if not removed:
            return
        for it in removed:
            self.act("delete", name=self.stored.pop(it))
        self.contents = {it: of for it, of in self.contents.items() if it >= oldest}
        self.collections += 1
        self.act("claim", fact="collected", round=self.collections, below=oldest, kept=len(self.stored), log=0)
        for sender, below, _ in self.contents.get(oldest, []):
            message = {"kind": "settled", "epoch": self.epoch, "below": below}
            self.act("send", to=sender, kind="settled", message=message)

    # --- recovery ---

    def membership(self, members):
        self.members = members
        if epoch_of(members) > self.epoch:
            self.epoch = epoch_of(members)
            self.reports, self.prepared_by, self.stable_by = {}, {}, {}
            self.waiting = [it for it in self.waiting if it[1]["epoch"] >= self.epoch]
            if self.phase not in ("starting", "givenUp"):
                self.act("hold")
                self.phase = "reporting"
            early, self.early = self.early, []
            for sender, message in early:
                self.message(sender, message)

    def message(self, sender, message):
        if message["epoch"] > self.epoch:
            self.early.append((sender, message))
        elif message["epoch"] == self.epoch:
            match message["kind"]:
                case "report":
                    self.enter_report(sender, message["permits"])
                case "prepared":
                    self.prepared_by[sender] = message["index"]
                case "stable":
                    self.stable(sender, message["index"])
                case "settled":
                    self.log = [it for it in self.log if it[0][1] != sender or it[0][3] >= message["below"]]

    def enter_report(self, process, permits):
        self.reports[process] = min(permits, self.reports.get(process, ANY))

    def listed(self, names):
        undone = lambda name: any(epoch > name[1] and name[2] > index for epoch, index in self.rollbacks)
        self.stored = {name[2]: name for name in names if not undone(name)}
        if self.stored:
            self.act("read", name=self.stored[max(self.stored)])
        elif not self.is_started():  # no process has seen any effect of the earlier lives
            self.incarnation = self.epoch
            self.act("restore", image=None, incarnation=self.incarnation)
            self.act("claim", fact="rolledBack", to=[self.incarnation, 0], checkpoint=[0, 0], cause="failure")
            self.take(1, False)
        else:
            self.give_up(self.name(1))

    def read(self, name, part):
        if self.phase == "starting" and part:
            self.index = self.bound = name[2]
            if not self.is_started():
                self.act("started")
        elif self.phase == "starting":
            self.stored.pop(name[2], None)
            if self.stored:
                self.act("read", name=self.stored[max(self.stored)])
            else:
                self.give_up(name)
        elif self.phase == "fetching" and self.first_from(self.target) == name:
            if part:
                self.act("keep", image=name)
                self.decide(self.target, part)
            else:
                self.damaged(name)

    def damaged(self, name):
        self.stored.pop(name[2], None)
        permits = max((it for it in self.stored if it < name[2]), default=None)
        if permits is None:
            return self.give_up(name)
        self.bound, self.phase = permits, "reporting"
        self.report(permits)

    def report(self, permits):
        self.enter_report(self.me, permits)
        self.broadcast("report", permits=permits)

    def proceed(self):
        if self.phase == "starting":
            if not self.has_checkpoint() or not self.is_started():
                return
            if self.epoch == 0:
                return self.run()
            self.phase = "reporting"
        if self.phase in ("running", "givenUp") or not all(it["up"] for it in self.members):
            return
        if self.me not in self.reports:
            self.report(ANY if self.bound is None else self.bound)
        if len(self.reports) < len(self.members):
            return
        index = min(self.reports.values())
        if self.phase in ("fetching", "recording") and self.target == index:
            return
        if not (self.phase == "prepared" and self.target == index):
            self.look_for(index)
        agreed = sum(it == index for it in self.prepared_by.values())
        if self.phase == "prepared" and self.target == index and agreed == len(self.members):
            if self.part:
                self.restore(self.part)
                self.schedule()
            self.run()

    def look_for(self, index):
        if self.bound is None and (self.index < index or not self.has_run):
            return self.decide(index, None)
        name = self.first_from(index)
        if name is None:
            return self.give_up(self.name(index))
        self.phase, self.target = "fetching", index
        if name[2] in self.stored:
            self.act("read", name=name)

    def first_from(self, index):
        names = [self.stored[it] for it in sorted(self.stored)] + [it["name"] for it in self.unsaved]
        return next((it for it in names if it[2] >= index), None)

    def decide(self, index, part):
        if part is None:
            return self.prepared(index, None)
        kept = part["name"][2]
        self.bound = kept
        self.rollbacks = [it for it in self.rollbacks if it[1] < kept] + [[self.epoch, kept]]
        self.phase, self.target, self.part = "recording", index, part
        self.record += 1
        self.act("record", version=self.record, data=list(self.rollbacks))

    def prepared(self, index, part):
        self.phase, self.target, self.part = "prepared", index, part
        self.prepared_by[self.me] = index
        self.broadcast("prepared", index=index)

    def restore(self, part):
        undone = [it["name"] for it in self.unsaved]
        if self.taking:
            undone.append(self.name(self.taking[0]))
        for name in undone:
            self.act("claim", fact="checkpointAborted", position=name[1:3], attempt=1)
        for it in self.unsaved:
            self.act("forget", **({"image": it["name"]} if it["written"] else {"snapshot": it["snapshot"]}))
        self.unsaved, self.taking, self.write_again = [], None, NEVER
        _, incarnation, index, _ = part["name"]
        to = [self.epoch, index]
        self.act("restore", image=part["name"], incarnation=self.epoch)
        self.act("forget", image=part["name"])
        self.incarnation, self.index = to
        saved = part["saved"]
        self.log = list(saved["log"])
        self.delivered = {sender: [below, set(beyond)] for sender, below, beyond in saved["delivered"]}
        self.contents = {it: of for it, of in self.contents.items() if it < index}
        self.contents[index] = saved["delivered"]
        for it in sorted(it for it in self.stored if it > index):
            self.act("delete", name=self.stored.pop(it))
        lowest = min(self.reports, key=lambda it: (self.reports[it], it))
        cause = {"cause": "failure"}
        if self.has_run and lowest != self.me:
            cause = {"cause": "alert", "from": lowest, "position": to}
        self.act("claim", fact="rolledBack", to=to, checkpoint=[incarnation, index], **cause)

    def run(self):
        self.phase, self.bound, self.has_run = "running", None, True
        self.announce_stable()
        for id, payload in self.log:
            self.act("claim", fact="resent", id=id)
            self.transmit(id, payload)
        if self.taking is None:
            self.act("release")
            self.deliver_waiting()

    def give_up(self, missing):
        self.phase = "givenUp"
        self.act("claim", fact="unrecoverable", group=self.me, missing=[{"name": missing, "asked": []}])

for line in sys.stdin:
    event = json.loads(line)
    reply = {"n": event["n"]}
    if event["event"] == "hello":
        reply["contract"] = 1
    else:
        if event["event"] == "start":
            process = Bcs(event)
        reply["do"] = actions = []
        process.handle(event, lambda do, **fields: actions.append({"do": do, **fields}))
        if process.wake() < NEVER:
            reply["wake"] = process.wake()
        reply["gauges"] = {"logMessages": len(process.log), "checkpoints": len(process.stored)}
    print(json.dumps(reply), flush=True)
