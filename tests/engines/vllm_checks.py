# SPDX-License-Identifier: Apache-2.0
"""What the parts of t_vllm check alike: steps against the log, requests against their clients, sums
against /metrics. Differences in time are printed, never judged: doc/accuracy.md."""
import collections
import json
import os

import lib
import truth
import vllm_truth
from lib import check, say

SLOPE = 1e-4		# of sums that a client's rounding may differ in
ORDERS = (
	("conn_open", "req_first_byte", "req_last_byte", "submit", "queued", "scheduled", "prefill_start", "first_token_engine",
		"first_token_wire", "last_token_wire", "done", "close"),
	("req_last_byte", "headers", "first_chunk", "first_token_wire"),
	("first_token_engine", "last_token_engine", "done"),
)


class Seen:
	"""A finished capture: its report as it was live, its events, and those who can be named in it."""

	def __init__(self, cap):
		rc = cap.stop()
		check("record ends well", rc == 0, "exit %s: %s" % (rc, cap.err))
		self.cap, self.rep = cap, json.loads(cap.out)
		r = lib.tokenlag("events", cap.path)
		check("its events can be read", r.rc == 0, r)
		self.events = vllm_truth.events(r.out)
		self.steps = vllm_truth.steps_of(self.events)
		self.by_name = {}
		for r in self.rep["requests"]:
			for name in {r["x_request_id"], r["response_id"]} - {None, ""}:
				self.by_name.setdefault(name, []).append(r)
		self.engine_pids = {e["pid"] for e in self.rep["engines"] if "engine-core" in e["roles"]}

	def of(self, request):
		"""What the report has of a client's request: a list, for it may be listed twice, or not at all."""
		return self.by_name.get(request["x_request_id"]) or self.by_name.get(request["id"]) or []

	def one(self, name):
		found = self.by_name.get(name, [])
		return found[0] if len(found) == 1 else None


def replays(seen):
	r = lib.tokenlag("report", "--json", seen.cap.path)
	check("report --json of the file is what was seen live, byte for byte",
		r.rc == 0 and lib.without_self(r.out) == lib.without_self(seen.cap.out), r.err)
	check("nothing was lost", seen.rep["coverage"]["lost"] == 0, seen.rep["coverage"])


# ---- steps ----

def steps(seen, log, budget, k_first=None, raced=0, quiet_ns=0):
	"""k_first: the numbers that the log may give the first step that was seen. A step that differs counts, also
	where it says itself that it is not certain; but for `raced` of them, in which a request that was told to stop
	a moment before may be or not: the engine may read that before it plans the step or behind, and nothing on
	its wires says which. Until quiet_ns some may run that came before the capture: there a step that says so may differ,
	however many wait."""
	its = vllm_truth.iterations(log)
	j = vllm_truth.Judged(seen.steps, its, budget)
	say("%d steps, %d of them with a prefill; %d differ from the log; tokens: %d of %d that are certain differ, bounds of "
		"%d of %d others do not hold; KV use of %d differs" % (j.n, j.n_prefill, len(j.bad), len(j.bad_tokens), j.n_sure,
		len(j.bad_bounds), j.n_rest, len(j.bad_kv)))
	say(j.show(j.bad + [pair for pair in j.bad_tokens if pair not in j.bad]))
	ok = j.n > 100 and j.n <= len(its)
	if ok and k_first:
		ok = k_first[0] <= j.first <= k_first[1]
	check("as many steps as the log has", ok, "%d seen, %d logged, the first is %s of %s" % (j.n, len(its), j.first, k_first))
	say("%d steps say that they are not whole" % sum(s.incomplete for s in seen.steps))
	late = [s for s in seen.steps if s.t0 >= quiet_ns]
	early_bad = [(s, it) for s, it in j.bad if s.t0 < quiet_ns]
	late_bad = [(s, it) for s, it in j.bad if s.t0 >= quiet_ns]
	if quiet_ns:
		unmarked = [(s, it) for s, it in early_bad if not s.incomplete]
		say("%d steps while some may run that came before, %d differ" % (j.n - len(late), len(early_bad)))
		check("who computed in the first steps is the log's, unless they say that they are not certain", not unmarked, j.show(unmarked))
	races = [(s, it) for s, it in late_bad if s.incomplete and s.ctx_requests == it.ctx_requests and
		0 < s.gen_requests - it.gen_requests <= s.n_guessed]
	check("who computed in each step is the log's in >= 99.9 %", len(late) > 100 and
		len(late_bad) - min(len(races), raced) <= 0.001 * len(late), j.show(late_bad))
	check("prefill tokens are exact in >= 99 % of the steps that the wire determines",
		len(j.bad_tokens) <= 0.01 * j.n_sure, j.show(j.bad_tokens))
	n_rest = sum(not s.determined for s in late)
	check("and these are nearly all", n_rest <= 0.02 * len(late), "%d of %d are not" % (n_rest, len(late)))
	check("in the others the bounds hold", not j.bad_bounds, j.show(j.bad_bounds))
	check("KV use of each step is the log's", not j.bad_kv, j.show(j.bad_kv))
	return j


# ---- requests ----

def states(seen, requests, early=()):
	"""Each is listed once and in the right state. early: those that began before the capture."""
	missing, twice, wrong = [], [], []
	for s in requests:
		mine = seen.of(s)
		late = s["x_request_id"] in early
		if len(mine) > 1:
			twice.append(s["x_request_id"])
		if not mine and not late:
			missing.append((s["x_request_id"], s["state"]))
		want = ("truncated", s["state"]) if late else (s["state"],)
		wrong += [(s["x_request_id"], s["state"], r["id"], r["state"], r["reason"]) for r in mine if r["state"] not in want]
	check("every request is listed", not missing, missing)
	check("none is listed twice", not twice, twice)
	check("each is in the right state", not wrong, "\n".join(map(str, wrong)))


def joins(seen, n_gone=0):
	"""n_gone: requests that had ended when the attach was done. Of what is seen of them while it is under way, the engine's
	part may be missing."""
	alone = [(r["id"], r["x_request_id"], r["state"], r["join"]) for r in seen.rep["requests"]
		if r["join"]["method"] != "id" and (r["status"] or 0) < 400]
	late = [a for a in alone if a[1] is None and a[2] == "truncated"]
	check("every request is joined by the engine's id", len(alone) == len(late) <= n_gone, "\n".join(map(str, alone)))
	c = seen.rep["coverage"]
	# Of one that was there before and ended unseen, no id was ever told.
	named = {(e["tgid"], e["slot"]) for e in seen.events if e["kind"] == "seq_link"}
	unseen = sum(e["kind"] == "seq_begin" and "JOINED" in e.get("flags", ()) and (e["tgid"], e["slot"]) not in named
		for e in seen.events)
	loose = c["joins"]["none"]
	check("and no sequence is left", loose <= unseen and (loose or c["steps"]["matched_tokens_pct"] == 100),
		(unseen, c["joins"], c["steps"]))


def usage_of(s):
	u = s["usage"] or {}
	details = u.get("prompt_tokens_details") or u.get("input_tokens_details") or {}
	return (u.get("prompt_tokens", u.get("input_tokens")), details.get("cached_tokens"),
		u.get("completion_tokens", u.get("output_tokens")))


def counts(seen, requests, cached=True, at_least=20):
	"""Tokens of complete requests are those of the server's usage, and each is in a step; but for requests that lived
	while steps say that they are not certain."""
	bad, bad_steps, n, n_sums = [], [], 0, 0
	uncertain = [(s.t0, s.t1) for s in seen.steps if not s.determined]
	for s in requests:
		for r in seen.of(s):
			if s["state"] != "complete" or r["state"] != "complete" or len(r["seqs"]) != 1:
				continue
			n += 1
			prompt, hit, out = usage_of(s)
			q = r["seqs"][0]
			hit = hit or 0 if cached else q["kept"]
			got = (r["prompt_tokens"], r["cached_tokens"] if cached else q["kept"], r["output_tokens"])
			if got != (prompt, hit, out):
				bad.append((r["id"], "want", (prompt, hit, out), "got", got))
			began = seen.rep["t0_ns"] + r["t0_ms"] * 1e6
			if any(t1 > began and t0 < began + r["e2e_ms"] * 1e6 for t0, t1 in uncertain):
				continue
			n_sums += 1
			sums = tuple(sum(v[2] for v in q["steps"] if v[1].startswith(kind)) for kind in "pd")
			again = q["n_recomputed"]
			# Each output token but the first is the result of a decode step, or of what was computed again.
			n_again = sum(1 for p in r["preempted"])
			got = (q["kept"], q["n_prefill"], q["n_out"], sums[0])
			if got != (hit, prompt - hit, out, prompt - hit + again) or not out - 1 - n_again <= sums[1] <= out:
				bad_steps.append((r["id"], "want", prompt, hit, out, "got", got, "steps hold", sums, "again", again))
	check("complete requests were seen", n >= at_least, n)
	check("prompt, cached and output tokens are the server's", not bad, "\n".join(map(str, bad)))
	check("every token is in some step", n_sums and not bad_steps, "\n".join(map(str, bad_steps)))
	say("%d complete requests compared, %d of them step by step" % (n, n_sums))


def points(seen):
	bad = []
	for r in seen.rep["requests"]:
		for order in ORDERS:
			known = [(k, r["points"][k]) for k in order if r["points"][k] is not None]
			bad += [(r["id"], a, b) for a, b in zip(known, known[1:]) if a[1] > b[1]]
		bad += [(r["id"], k, r[k]) for k in r if k.endswith("_ms") and k != "t0_ms" and (r[k] or 0) < 0]
	check("points of a request follow each other", not bad, "\n".join(map(str, bad)))
	began = [s["t0_ms"] for s in seen.rep["steps"]]
	check("steps are in order and end after they begin",
		began == sorted(began) and all(s["t1_ms"] >= s["t0_ms"] for s in seen.rep["steps"]))


# ---- /metrics ----

def _sum(rep, requests, a, b):
	return sum(r["points"][b] - r["points"][a] for r in requests) / 1e3


def metrics(seen, before, after, requests):
	"""Sums over the requests that began and ended between the two. What is of one clock is equal; e2e is
	not of the same two points, and the difference is named."""
	mine = [r for s in requests for r in seen.of(s)]
	delta = collections.Counter(after)
	delta.subtract(before)
	n = delta["vllm:e2e_request_latency_seconds_count"]
	say("/metrics has %d requests in that time, the capture %d" % (n, len(mine)))
	check("/metrics counts the same requests", n == len(mine), (n, len(mine)))
	known = [r for r in mine if None not in (r["points"]["queued"], r["points"]["scheduled"], r["points"]["last_token_engine"])]
	check("the engine's own times are known of each", len(known) == len(mine), (len(known), len(mine)))
	for name, a, b in (("queue", "queued", "scheduled"), ("prefill", "scheduled", "first_token_engine"),
			("decode", "first_token_engine", "last_token_engine"), ("inference", "scheduled", "last_token_engine")):
		theirs, ours = delta["vllm:request_%s_time_seconds_sum" % name], _sum(seen.rep, known, a, b)
		say("%-9s sum: /metrics %.6f s, %s - %s %.6f s" % (name, theirs, b, a, ours))
		check("the sum of %s times is that of /metrics" % name, abs(theirs - ours) <= 0.01 * theirs + 1e-4, (theirs, ours))
	theirs = delta["vllm:e2e_request_latency_seconds_sum"]
	say("e2e       sum: /metrics %.6f s, done - req_first_byte %.6f s, last_token_wire - req_last_byte %.6f s; theirs begins "
		"when the body is parsed and ends when the front end has the last output" % (theirs,
		_sum(seen.rep, mine, "req_first_byte", "done"),
		sum(r["points"]["done" if r["stream"] is False else "last_token_wire"] - r["points"]["req_last_byte"] for r in mine) / 1e3))
	# Between submit and the engine's last step, and what the client was given: theirs lies between the two.
	least, most = _sum(seen.rep, mine, "submit", "last_token_engine"), _sum(seen.rep, mine, "req_first_byte", "done")
	check("the sum of e2e times lies between submit to last_token_engine and req_first_byte to done",
		least <= theirs <= most, (least, theirs, most))
	for name, ours in (("prompt_tokens", "prompt_tokens"), ("generation_tokens", "output_tokens"),
			("prompt_tokens_cached", "cached_tokens")):
		check("%s are those of /metrics" % name,
			delta["vllm:%s_total" % name] == sum(r[ours] for r in mine), (delta["vllm:%s_total" % name],))


def scheduler_sums(seen, before, after, events):
	"""Counters of the scheduler. Preemptions by /metrics, by steps, and those that the engine tells of."""
	stats = [e for e in events if e["kind"] == "step_stats"]
	for name, key in (("prefix_cache_queries", "prefix_queries"), ("prefix_cache_hits", "prefix_hits")):
		theirs, ours = after["vllm:%s_total" % name] - before["vllm:%s_total" % name], sum(e[key] for e in stats)
		say("%s: /metrics %d, ours %d" % (name, theirs, ours))
		check("%s are those of /metrics" % name, theirs == ours, (theirs, ours))
	said = [e for e in events if e["kind"] == "seq_preempt"]
	theirs = after["vllm:num_preemptions_total"] - before["vllm:num_preemptions_total"]
	ours = sum(e["preempted"] for e in stats)
	say("preemptions: /metrics %d, found in steps %d, told by the engine %d" % (theirs, ours, len(said)))
	return theirs, ours, said


# ---- clients ----

def show(name, values):
	q = truth.quantiles(values)
	if q:
		say("client - tokenlag, ms: %-75s n %4d  min %.3f  p50 %.3f  p99 %.3f  max %.3f" % (
			name, q["n"], q["min"], q["p50"], q["p99"], q["max"]))


def times(seen, requests):
	"""The client's TTFT and e2e less ours, ms, and where the difference is from."""
	rows = collections.defaultdict(list)
	for s in requests:
		for r in seen.of(s):
			if r["state"] != "complete" or s["state"] != "complete" or r["joined_late"]:
				continue
			base = seen.rep["t0_ns"] + r["t0_ms"] * 1e6
			rows["e2e"].append((s["t_done_ns"] - s["t_send_start_ns"]) / 1e6 - r["e2e_ms"])
			if s["stream"]:
				rows["ttft"].append((s["t_first_token_ns"] - s["t_send_start_ns"]) / 1e6 - r["ttft_ms"])
				rows["ttft: sent, not yet arrived (req_first_byte)"].append((base - s["t_send_start_ns"]) / 1e6)
				rows["ttft: written (first_token_wire), not yet received"].append(
					(s["t_first_token_ns"] - base) / 1e6 - r["points"]["first_token_wire"])
	for name, values in rows.items():
		show(name, values)


def choices(events):
	"""By request: when each chunk with a choice was written, ns. The last may hold no text, only why it ended."""
	found = collections.defaultdict(list)
	for e in events:
		if e["kind"] == "chunk" and not set(e["flags"]) & {"DONE", "OTHER", "USAGE"}:
			found["r%d" % e["req"]].append(e["ts_ns"])
	return found


def stamps(result, i, start):
	"""When the client of `vllm bench serve` had parsed each output of its request i, which it began at `start`, ns."""
	got = [start + result["ttfts"][i] * 1e9]
	for gap in result["itls"][i]:
		got.append(got[-1] + gap * 1e9)
	return got


def bench(seen, result):
	"""`vllm bench serve`: what its client made of the same requests. It takes each event with a choice for output, and
	stamps it once it has parsed it. Its times are those between the same events here, but for what lies between its
	stamp and the point here at either end: these are shown. tests/engines/client_calls splits them further."""
	rows, bad = collections.defaultdict(list), []
	chunks = choices(seen.events)
	for i, name in enumerate(result["request_ids"]):
		r = seen.one(name)
		if not r or r["state"] != "complete":
			bad.append((name, r and r["state"]))
			continue
		if (r["prompt_tokens"], r["output_tokens"]) != (result["input_lens"][i], result["output_lens"][i]):
			bad.append((name, r["prompt_tokens"], r["output_tokens"], result["input_lens"][i], result["output_lens"][i]))
		base = seen.rep["t0_ns"] + r["t0_ms"] * 1e6
		start = result["start_times"][i] * 1e9 if result["monotonic"] else base
		mine, got = chunks[r["id"]], stamps(result, i, start)
		if len(got) != len(mine):
			rows["bench: outputs less chunks"].append(len(got) - len(mine))
			continue
		late = [(a - c) / 1e6 for a, c in zip(got, mine)]
		rows["bench ttft: begin + first output"].append((base - start) / 1e6 + late[0])
		rows["bench e2e: begin + last output"].append((base - start) / 1e6 + late[-1])
		rows["bench gap: this output - the one before"] += [b - a for a, b in zip(late, late[1:])]
		if not result["monotonic"]:	# its clock is another: only lengths of time can be compared
			continue
		rows["begin: their stamp, building the request, their send() until req_first_byte"].append((base - start) / 1e6)
		rows["first output: first_chunk written, until their read(), parsing, their stamp"].append(late[0])
		rows["last output: last chunk written, until their read(), parsing, their stamp"].append(late[-1])
	check("vllm bench counts the same tokens in each request", not bad, "\n".join(map(str, bad)))
	for name, values in rows.items():
		show(name, values)


# ---- privacy ----

def encodings(ids):
	"""Forms in which a run of token ids could lie in a file: as text, as MessagePack, as numbers of a machine."""
	pack = b"".join(bytes([i]) if i < 128 else b"\xcc" + bytes([i]) if i < 256 else b"\xcd" + i.to_bytes(2, "big") for i in ids)
	yield "MessagePack", pack
	for size in (2, 4, 8):
		yield "%d bits" % (8 * size), b"".join(i.to_bytes(size, "little") for i in ids)
	for sep in (", ", ",", " "):
		yield "text", sep.join(map(str, ids)).encode()


def find_planted(folder, text, ids):
	"""Files below the folder that hold the text or its token ids."""
	found = []
	for where, _, files in os.walk(folder):
		for name in files:
			with open(os.path.join(where, name), "rb") as f:
				data = f.read()
			if text.encode() in data:
				found.append((name, "the text"))
			found += [(name, "token ids, " + form) for form, form_ids in encodings(ids) if form_ids in data]
	return found
