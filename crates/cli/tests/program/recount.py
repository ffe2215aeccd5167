"""Counts the samples of a probe, from `faultline export` on standard input, as docs/expectations.md defines the figures.

The arguments are the times of the faults' effects, in seconds. Assumes that the node of the probe is never down, and that
the probe is observed all the time.
"""
import json, sys

effects = list(map(float, sys.argv[1:]))
facts = [json.loads(line) for line in sys.stdin]
end = min(it["time_ns"] - it.get("latency_ns", 0) for it in facts if it["fact"] in ("checked", "completed")) / 1e9
samples = []  # start, end, whether it succeeded
for it in facts:
    if it["fact"] in ("probeSucceeded", "probeFailed"):
        upto = it["time_ns"] / 1e9
        start = upto - it["latency_ns"] / 1e9
        if upto >= 0 and start < end:
            samples.append((start, upto, it["fact"] == "probeSucceeded"))
samples.sort()

outages, begun = [], None
for start, _, succeeded in samples:
    if succeeded and begun is not None:
        outages.append(start - begun)
        begun = None
    elif not succeeded and begun is None:
        begun = start
if begun is not None:
    outages.append(end - begun)


def recovered(at, until):
    after = [it for it in samples if it[1] >= at]
    for place in range(len(after) - 2):
        three = after[place:place + 3]
        if all(it[2] for it in three) and three[2][1] <= until:
            return 0.0 if place == 0 else max(three[0][0] - at, 0.0)
    return None


succeeded = sum(it[2] for it in samples)
print(json.dumps({
    "samples": len(samples),
    "succeeded": succeeded,
    "availability": 1 - sum(outages) / end,
    "longestOutage": max(outages, default=0.0),
    "recovered": [recovered(at, until) for at, until in zip(effects, effects[1:] + [end])],
}))
