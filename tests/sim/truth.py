#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Judge a truth file of simserve: truth.py TRUTH SEEN LABEL FIRST_NUMBER, prints four lines of TAP."""
import collections
import json
import sys


def read(path):
	steps, requests = [], {}
	with open(path) as f:
		for line in f:
			o = json.loads(line)
			if "step" in o:
				steps.append(o)
			else:
				assert o["id"] not in requests, "a request is told twice"
				requests[o["id"]] = o
	return steps, requests


def tokens_add_up(steps, requests, seen):
	prompt, out = collections.Counter(), collections.Counter()
	for s in steps:
		ids = [m[0] for m in s["members"]]
		assert len(ids) == len(set(ids)) and ids, f"step {s['step']} has a member twice, or none"
		for name, phase, n in s["members"]:
			if phase == "p":
				prompt[name] += n
			else:
				out[name] += n
	aborted = {r["id"] for r in seen if r["state"] != "complete"}
	for r in requests.values():
		if r["id"] not in aborted:
			assert prompt[r["id"]] == r["prompt"], f"{r} had {prompt[r['id']]} tokens of its prompt computed"
			assert out[r["id"]] + 1 == r["out"], f"{r} had {out[r['id']]} decodes"


def kernels_are_in_order(steps, requests, seen):
	last, ranks = {}, set()
	for s in steps:
		assert s["t0_ns"] < s["t_launched_ns"] <= s["t1_ns"]
		for name, device, stream, t0, t1 in s["kernels"]:
			assert last.get((device, stream), 0) <= t0 < t1, f"step {s['step']}: {name} overlaps"
			last[device, stream] = t1
			ranks.add(device)
			if device == 0:
				assert s["t0_ns"] <= t0 and t1 <= s["t1_ns"], f"step {s['step']}: {name} is outside"
	per_rank = [collections.Counter(k[1] for k in s["kernels"]) for s in steps]
	assert all(len(c) == len(ranks) and len(set(c.values())) == 1 for c in per_rank), "ranks differ"


def collectives_end_together(steps, requests, seen):
	apart, n_ranks = [], len({k[1] for s in steps for k in s["kernels"]})
	for s in steps:
		ends = collections.defaultdict(list)
		for name, device, _, _, t1 in s["kernels"]:
			if "AllReduce" in name:
				ends[device].append(t1)
		if len(ends) > 1:
			apart += [max(e) - min(e) for e in zip(*ends.values())]
	if n_ranks == 1:
		assert not any("AllReduce" in k[0] for s in steps for k in s["kernels"]), "one rank, and collectives"
		return
	# A rank that launches late ends its collectives later than the rest, which do not wait for it.
	assert 0 in apart, "no collective ends for all ranks at once"


def client_saw_the_same(steps, requests, seen):
	done = 0
	for r in seen:
		if r["state"] == "complete":
			t = requests[r["id"]]
			done += 1
			assert t["out"] == r["n_tokens"] == r["usage"]["completion_tokens"], f"{t} against {r['n_tokens']}"
			assert t["prompt"] == r["usage"]["prompt_tokens"] == r["asked_prompt_words"], f"{t}"
			assert r["t_send_start_ns"] <= t["t_recv_ns"] <= r["t_first_byte_ns"]
			assert r["finish_reason"] in ("length", "stop")
			assert (r["finish_reason"] == "stop") == (t["out"] < r["asked_max_tokens"])
		elif r["state"] == "aborted":
			assert requests[r["id"]]["out"] >= r["n_tokens"]
	states = collections.Counter(r["state"] for r in seen)
	assert done > 30 and states["aborted"] and states["error"], f"{states}"


def main():
	truth, seen_path, label, first = sys.argv[1:]
	steps, requests = read(truth)
	with open(seen_path) as f:
		seen = json.load(f)["requests"]
	checks = (tokens_add_up, kernels_are_in_order, collectives_end_together, client_saw_the_same)
	for i, check in enumerate(checks, int(first)):
		what = f"{check.__name__.replace('_', ' ')}: {label}"
		try:
			check(steps, requests, seen)
			print(f"ok {i} - {what}")
		except (AssertionError, KeyError, TypeError) as e:
			print(f"not ok {i} - {what}\n# {type(e).__name__} {e}")


main()
