#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares a report with the truth of simserve: gpu_truth.py TRUTH REPORT.json; prints numbers as JSON.

A step of the truth is "seen" if the report has a step whose first or last work on device 0 is the step's own,
within TOLERANCE_NS. Of seen steps: are busy time, launches, graph and members what they were?
"""
import bisect
import collections
import json
import sys

TOLERANCE_NS = 5000
HOST_TOLERANCE_NS = 300000
CLOSED_NS = 300000000	# without a record: the window was closed, and the next one not yet open


def read_truth(path):
	steps, requests = [], {}
	with open(path) as f:
		for line in f:
			try:
				o = json.loads(line)
			except ValueError:	# the last line of a server that was killed
				continue
			if "step" in o:
				steps.append(o)
			else:
				requests[o["id"]] = o
	return steps, requests


def work_of(step, device):
	return sorted((k[3], k[4], k[0]) for k in step["kernels"] + step["copies"] if k[1] == device)


def union(spans):
	total, end = 0, 0
	for t0, t1, _ in spans:
		total += max(0, t1 - max(t0, end))
		end = max(end, t1)
	return total


class Comparison:
	def __init__(self, truth, report):
		self.steps, self.requests = read_truth(truth)
		with open(report) as f:
			self.report = json.load(f)
		self.t0 = self.report["t0_ns"]
		self.n = collections.Counter()
		self.odd = collections.defaultdict(list)

	def ns(self, ms):
		return None if ms is None else self.t0 + round(ms * 1e6)

	def note(self, what, ok, *why):
		self.n[what] += 1
		self.n[what + "_ok"] += bool(ok)
		if not ok and len(self.odd[what]) < 5:
			self.odd[what].append(why)

	def members(self, step, ids, known):
		got = collections.Counter()
		for seq, phase, n in step["members"]:
			if ids.get(seq) in known:
				got[ids[seq], phase[0]] += 1
		return got

	def run(self):
		ids = {q["id"]: r["response_id"] for r in self.report["requests"] for q in r["seqs"]}
		known = {r["response_id"] for r in self.report["requests"] if r["state"] == "complete"}
		by_end = sorted((self.ns(s["t_gpu1_ms"]), i) for i, s in enumerate(self.report["steps"]) if s["t_gpu1_ms"] is not None)
		ends = [e for e, _ in by_end]
		matched = {}
		for s in self.steps:
			work = work_of(s, 0)
			if not work:
				continue
			end = max(w[1] for w in work)
			at = bisect.bisect_left(ends, end - TOLERANCE_NS)
			if at < len(ends) and ends[at] <= end + TOLERANCE_NS:
				matched[by_end[at][1]] = s
				self.one(s, self.report["steps"][by_end[at][1]], work, ids, known)
		first, last = (min(ends), max(ends)) if ends else (0, 0)
		closed = [(a, b) for a, b in zip(ends, ends[1:]) if b - a > CLOSED_NS]
		self.n["closed"] = len(closed)
		for s in self.steps:
			end = max((w[1] for w in work_of(s, 0)), default=0)
			if first <= end <= last and not any(a < end < b for a, b in closed):
				self.n["truth_steps"] += 1
		self.n["report_steps"] = len(by_end)
		self.n["report_steps_matched"] = len(matched)
		self.shares(matched)
		self.hosts(ids, known)

	def hosts(self, ids, known):
		"""Steps that are known by launches alone: matched by when the host had their outputs."""
		rest = sorted((self.ns(s["t1_ms"]), i) for i, s in enumerate(self.report["steps"]) if s["t_gpu1_ms"] is None)
		ends = [e for e, _ in rest]
		if not ends:
			return
		for s in self.steps:
			at = bisect.bisect_left(ends, s["t1_ns"] - HOST_TOLERANCE_NS)
			if at < len(ends) and ends[at] <= s["t1_ns"] + HOST_TOLERANCE_NS:
				r = self.report["steps"][rest[at][1]]
				want, got = self.wanted(s, known), self.members(r, ids, known)
				self.note("host_members", want == got, s["step"], sorted(want - got), sorted(got - want))
				if r["launches"] is not None:
					self.note("host_launches", r["launches"] == self.launches(s), s["step"], r["launches"], self.launches(s))
		self.n["host_steps"] = len(ends)

	def launches(self, s):
		return sum(k[1] == 0 for k in s["kernels"]) if s["graph"] in ("none", "miss") else 3	# a graph and two of sampling

	def wanted(self, s, known):
		return collections.Counter((m[0], m[1]) for m in s["members"] if m[0] in known)

	def one(self, s, r, work, ids, known):
		gpu0 = self.ns(r["t_gpu0_ms"])
		self.note("begin", abs(gpu0 - work[0][0]) <= TOLERANCE_NS, s["step"], gpu0 - work[0][0])
		busy = round(r["gpu_busy_ms"] * 1e6)
		self.note("busy", abs(busy - union(work)) <= TOLERANCE_NS, s["step"], busy, union(work))
		launches = self.launches(s)
		if r["launches"] is not None:
			self.note("launches", r["launches"] == launches, s["step"], r["launches"], launches)
		self.note("graph", r["graph"] == s["graph"] or (r["graph_maybe_padded"] and s["graph"] == "padded"),
			s["step"], r["graph"], s["graph"])
		want, got = self.wanted(s, known), self.members(r, ids, known)
		self.note("members", want == got, s["step"], sorted(want - got), sorted(got - want))
		for phase in "pd":
			w = {k for k in want if k[1] == phase}
			g = {k for k in got if k[1] == phase}
			self.n["member_" + phase] += len(w | g)
			self.n["member_" + phase + "_ok"] += len(w & g)
		# each kernel of a step belongs to each of its members
		self.n["records"] += len(work)
		self.n["records_ok"] += len(work) if abs(gpu0 - work[0][0]) <= TOLERANCE_NS and abs(busy - union(work)) <= TOLERANCE_NS else 0

	def shares(self, matched):
		"""Of requests all of whose steps were seen: GPU time of the prompt and of decoding, split by tokens."""
		steps = {s["step"] for s in matched.values()}
		of = collections.defaultdict(list)
		for s in self.steps:
			for m in s["members"]:
				of[m[0]].append((s, m))
		for r in self.report["requests"]:
			visits = of.get(r["response_id"], [])
			if r["state"] != "complete" or not visits or any(s["step"] not in steps for s, _ in visits):
				continue
			for phase, key in (("p", "gpu_prefill_ms"), ("d", "gpu_decode_ms")):
				mine = [(s, m) for s, m in visits if m[1] == phase]
				want = sum(union(work_of(s, 0)) * m[2] / sum(k[2] for k in s["members"]) for s, m in mine)
				alone = all(len(s["members"]) == 1 for s, _ in mine)
				got = r[key]
				if not mine:
					continue
				what = key + ("_alone" if alone else "")
				near = got is not None and abs(got * 1e6 - want) <= (TOLERANCE_NS * len(mine) if alone else want / 20)
				self.note(what, near, r["id"], got, want / 1e6)


def main():
	c = Comparison(sys.argv[1], sys.argv[2])
	c.run()
	print(json.dumps({"n": dict(sorted(c.n.items())), "odd": c.odd}, indent=1, default=str))


if __name__ == "__main__":
	main()
