# SPDX-License-Identifier: Apache-2.0
"""Judges launches that probes on libcuda saw by what simserve knows of its steps. Prints TAP.

    launches.py EVENTS TRUTH RANKS NAME FIRST
"""
import json
import sys

events, truth, ranks, name, n = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
MARGIN_NS = 50_000_000


def result(ok, what, why=""):
    global n
    print(f"{'ok' if ok else 'not ok'} {n} - {name}: {what}")
    if not ok and why:
        print(f"# {why}")
    n += 1


launches, lost = {}, 0
for line in open(events):
    e = json.loads(line)
    if e["kind"] == "gpu_launch":
        launches.setdefault(e["tgid"], []).append(e)
    elif e["kind"] == "lost":
        lost += e["n"]
steps = [o for o in map(json.loads, open(truth)) if "step" in o]
result(len(launches) == ranks and not lost, f"{ranks} processes, nothing lost", f"{len(launches)}, {lost} lost")

first = max((v[0]["ts_ns"] for v in launches.values()), default=0) + MARGIN_NS
last = min((v[-1]["ts_ns"] for v in launches.values()), default=0) - MARGIN_NS
judged, wrong = 0, []
for v in launches.values():
    v.sort(key=lambda e: e["ts_ns"])
    at = 0
    for step, after in zip(steps, steps[1:]):
        begin, end = step["t0_ns"], after["t0_ns"]
        if begin < first or end > last:
            continue
        while at < len(v) and v[at]["ts_ns"] < begin:
            at += 1
        mine = []
        while at < len(v) and v[at]["ts_ns"] < end:
            mine.append(v[at])
            at += 1
        count = {c: sum(e["n"] for e in mine if e["call"] == c) for c in ("kernel", "graph", "sync")}
        device = step["kernels"][0][1]
        kernels = sum(k[1] == device for k in step["kernels"])
        replayed = step["graph"] in ("hit", "padded")
        judged += 1
        # Of a step that replays a graph, only what follows the graph is launched kernel by kernel.
        if count["graph"] != replayed or count["sync"] != 1 or \
           (count["kernel"] >= kernels if replayed else count["kernel"] != kernels):
            wrong.append((step["step"], step["graph"], kernels, count))
        for e in mine:
            if e["call"] == "sync" and not begin < e["ts_ns"] + e["dur_ns"] <= end:
                wrong.append((step["step"], "wait", e["ts_ns"] - begin, e["dur_ns"]))
result(judged >= 50 * ranks and not wrong, f"launches and waits of every step ({judged})",
       f"{judged} steps, {len(wrong)} wrong: {wrong[:3]}")
