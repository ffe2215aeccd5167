"""The traffic of the simulator's benchmark on SimPy, without any protocol. README.md explains how to run it.

    simpy_traffic.py burst MESSAGES BATCH BETWEEN
    simpy_traffic.py both MESSAGES BETWEEN
    simpy_traffic.py pingpong ROUNDS
    simpy_traffic.py paper

`simgrid.cpp` explains the arguments. A message is one timeout with a callback, the least that SimPy needs for it. Prints
the number of messages received, and the CPU time of the simulation in seconds, excluding its setup.
"""

import random
import sys
import time

import simpy

CLUSTERS, NODES, BYTES = 2, 100, 1064
# Latency and bandwidth within a cluster and between clusters.
LINKS = (10e-6, 80e6), (5e-3, 12.5e6)
JITTER = 200e-6

env = simpy.Environment()
free = [[0.0, 0.0] for _ in range(CLUSTERS * NODES)]
received = 0
draw, uniform = random.Random(1).randrange, random.Random(2).random


def receive(_):
    global received
    received += 1


def peer(cluster, me):
    if me // NODES != cluster:
        return cluster * NODES + draw(NODES)
    other = draw(NODES - 1)
    return cluster * NODES + other + (other >= me % NODES)


def put(me, to, size):
    between = me // NODES != to // NODES
    latency, bandwidth = LINKS[between]
    out = max(free[me][between], env.now) + size / bandwidth
    free[me][between] = out
    if between:
        latency += JITTER * (2 * uniform() - 1)
    arrival = env.timeout(out - env.now + latency)
    arrival.callbacks.append(receive)
    return arrival


def burst(me, messages, batch, between):
    sent = 0
    while sent < messages:
        yield env.timeout(1e-3)
        for _ in range(min(batch, messages - sent)):
            sent += 1
            cluster = 1 if me < NODES and uniform() < between else me // NODES
            put(me, peer(cluster, me), BYTES)


def both(me, messages, between):
    pauses = random.Random(me).expovariate
    for _ in range(messages):
        yield env.timeout(pauses(1 / 100e-6))
        own = me // NODES
        put(me, peer(1 - own if uniform() < between else own, me), BYTES)


def pingpong(me, rounds):
    partner = me // NODES * NODES + NODES - 1 - me % NODES
    for _ in range(rounds):
        yield put(me, partner, BYTES)
        yield put(partner, me, BYTES)


def paper(me):
    counts = ((2920, 145), (11, 2497))
    sends = []
    for to, count in enumerate(counts[me // NODES]):
        mine = count // NODES + (me % NODES < count % NODES)
        sends += [(36000 * uniform(), peer(to, me)) for _ in range(mine)]
    for at, to in sorted(sends):
        yield env.timeout(at - env.now)
        put(me, to, 10064)


def main():
    mode, *rest = sys.argv[1:]
    for me in range(CLUSTERS * NODES):
        if mode == "burst":
            env.process(burst(me, int(rest[0]), int(rest[1]), float(rest[2])))
        elif mode == "both":
            env.process(both(me, int(rest[0]), float(rest[1])))
        elif mode == "pingpong":
            if me % NODES < NODES // 2:
                env.process(pingpong(me, int(rest[0])))
        elif mode == "paper":
            env.process(paper(me))
        else:
            sys.exit(2)
    begin = time.process_time()
    env.run()
    print(received, time.process_time() - begin)


main()
