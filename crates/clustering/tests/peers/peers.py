"""Writes the smallest sums of both shares that METIS, KaHIP and Leiden find for the graphs in a directory.

    FAULTLINE_GRAPHS=DIR cargo test -p faultline-clustering --test peers -- --ignored write
    pip install igraph==1.0.0 leidenalg==0.12.0 pymetis==2025.2.2 kahip==3.25
    python peers.py DIR > sums.csv

Keeps the best of many runs. Leiden: 20 seeds at the resolution that makes its objective this sum, each until nothing
improves. METIS: every number of parts in a list, three imbalances, three seeds. KaHIP: the same numbers of parts, two
imbalances, two seeds. No test needs this script or these programs.
"""
import os
import sys

import igraph
import kahip
import leidenalg
import pymetis


def parts(n):
    k, all_ = 2, []
    while k <= max(2, n // 2) and k <= 160:
        all_.append(k)
        k = k + 1 if k < 16 else k + k // 5
    return all_


def total(n, w, edges, of):
    sizes = {}
    for it in of:
        sizes[it] = sizes.get(it, 0) + 1
    cut = sum(c for a, b, c in edges if of[a] != of[b])
    return 100.0 * sum(s * s for s in sizes.values()) / (n * n) + 100.0 * cut / w


def leiden(n, w, edges):
    g = igraph.Graph(n, [(a, b) for a, b, _ in edges])
    weights = [c for _, _, c in edges]
    best = 1e9
    for seed in range(20):
        it = leidenalg.find_partition(g, leidenalg.CPMVertexPartition, weights=weights,
                                      resolution_parameter=2.0 * w / (n * n), n_iterations=-1, seed=seed)
        best = min(best, total(n, w, edges, it.membership))
    return best


def lists(n, edges):
    adj = [[] for _ in range(n)]
    for a, b, c in edges:
        adj[a].append((b, c))
        adj[b].append((a, c))
    xadj, adjncy, wgt = [0], [], []
    for row in adj:
        for b, c in row:
            adjncy.append(b)
            wgt.append(c)
        xadj.append(len(adjncy))
    return xadj, adjncy, wgt


def metis(n, w, edges):
    xadj, adjncy, wgt = lists(n, edges)
    best = 1e9
    for k in parts(n):
        for ufactor in (30, 200, 600):
            for seed in range(3):
                _, of = pymetis.part_graph(k, xadj=xadj, adjncy=adjncy, eweights=wgt, recursive=False,
                                           options=pymetis.Options(ufactor=ufactor, seed=seed))
                best = min(best, total(n, w, edges, of))
    return best


def kahip_(n, w, edges):
    xadj, adjncy, wgt = lists(n, edges)
    best = 1e9
    for k in parts(n):
        for imbalance in (0.03, 0.3):
            for seed in range(2):
                _, of = kahip.kaffpa([1] * n, xadj, wgt, adjncy, k, imbalance, True, seed, 1 if n <= 100 else 0)
                best = min(best, total(n, w, edges, of))
    return best


print("graph,metis,kahip,leiden")
for file in sorted(os.listdir(sys.argv[1])):
    with open(os.path.join(sys.argv[1], file)) as f:
        n, w = map(int, f.readline().split())
        edges = [tuple(map(int, line.split())) for line in f]
    sums = [program(n, w, edges) for program in (metis, kahip_, leiden)]
    print(file, *["%.6f" % it for it in sums], sep=",", flush=True)
