# SPDX-License-Identifier: Apache-2.0
"""What really happened on a vLLM server, from witnesses that know nothing of tokenlag: its log, with one
line per engine step (--enable-logging-iteration-details), and its /metrics. And what a recording says of
the same, brought into the same form."""
import collections
import json
import re
import urllib.request

_STEP = re.compile(r"Engine (\d+): Iteration\((\d+)\): (\d+) context requests, (\d+) context tokens, (\d+) generation "
	r"requests, (\d+) generation tokens, [^%]*KV cache usage: ([\d.]+)%")
_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$")

Iteration = collections.namedtuple("Iteration", "k ctx_requests ctx_tokens gen_requests gen_tokens kv_pct")


def iterations(log_path):
	"""The steps that the server logged so far, in order."""
	with open(log_path, errors="replace") as f:
		found = [m.groups() for m in _STEP.finditer(f.read())]
	return [Iteration(int(g[1]), int(g[2]), int(g[3]), int(g[4]), int(g[5]), float(g[6])) for g in found]


def metrics(url):
	"""name -> sum over all labels but the buckets'; name{label="value"} -> that one."""
	sums = collections.Counter()
	with urllib.request.urlopen(url + "/metrics", timeout=30) as answer:
		for line in answer.read().decode().splitlines():
			m = _SAMPLE.match(line)
			if not m or m.group(1).endswith("_bucket"):
				continue
			value = float(m.group(3))
			sums[m.group(1)] += value
			for label in re.findall(r'\w+="[^"]*"', m.group(2) or ""):
				sums["%s{%s}" % (m.group(1), label)] += value
	return sums


class Step:
	"""One engine step of a recording. The log takes a sequence for one in its context as long as it has
	given no token; one that computes again what it lost goes as generation."""

	def __init__(self, ev):
		self.t0, self.t1, self.pid = ev["ts_ns"], ev["end_ns"], ev["tgid"]
		self.ctx, self.gen = set(), set()	# slots; one may have two shares, new and computed again
		self.ctx_tokens = self.gen_tokens = self.sure_tokens = self.n_guessed = 0
		self.n_decodes = self.decode_tokens = 0
		self.incomplete = "GUESS" in ev.get("flags", ())
		self.stats = None

	def add(self, member, had_output):
		guess, n = "GUESS" in member.get("flags", ()), member["n_tokens"]
		(self.gen if had_output else self.ctx).add(member["slot"])
		if had_output:
			self.gen_tokens += n
		else:
			self.ctx_tokens += n
		if member["phase"] == "decode":
			self.n_decodes += 1
			self.decode_tokens += n
		if guess:
			self.n_guessed += 1
		else:
			self.sure_tokens += n

	@property
	def ctx_requests(self):
		return len(self.ctx)

	@property
	def gen_requests(self):
		return len(self.gen)

	@property
	def determined(self):
		return not self.n_guessed and not self.incomplete

	def agrees(self, it):
		return (self.ctx_requests, self.gen_requests, self.gen_tokens) == (
			it.ctx_requests, it.gen_requests, it.gen_tokens)

	def bounds_hold(self, it, budget):
		"""Is the log's sum of tokens within what the step leaves open: each member that is inferred has at
		least one token, unless its being there is not certain either, and all of them no more than the
		budget less what is certain?"""
		least = self.sure_tokens + (0 if self.incomplete else self.n_guessed)
		return least <= it.ctx_tokens + it.gen_tokens <= budget

	def __str__(self):
		return "%d ctx %d, %d gen %d%s%s" % (self.ctx_requests, self.ctx_tokens, self.gen_requests, self.gen_tokens,
			", %d inferred" % self.n_guessed if self.n_guessed else "", ", incomplete" if self.incomplete else "")


def events(lines):
	return [json.loads(line) for line in lines.splitlines() if line]


def steps_of(evs):
	"""Steps of the events of a recording, with the engine's own account of its scheduler."""
	steps, n_out = [], {}
	for ev in evs:
		kind, key = ev["kind"], (ev.get("tgid"), ev.get("slot"))
		if kind == "seq_begin":
			n_out[key] = 0
			if "JOINED" in ev.get("flags", ()):
				del n_out[key]
		elif kind == "seq_end":
			n_out.pop(key, None)
		elif kind == "step":
			s = Step(ev)
			for m in ev.get("members", ()):
				at = (ev["tgid"], m["slot"])
				# of one that was there before us, a decode step shows that it had given some
				before = n_out.get(at, 1 if m["phase"] == "decode" else 0)
				s.add(m, before > 0 and m["slot"] not in s.ctx)
				n_out[at] = before + m["n_out"]
			steps.append(s)
		elif kind == "step_stats" and steps:
			steps[-1].stats = ev
			if ev["drafted"]:	# which one had them no row says: those that were rejected are nowhere else
				steps[-1].gen_tokens += ev["drafted"] + steps[-1].n_decodes - steps[-1].decode_tokens
	return steps


class Judged:
	"""A recording's steps beside the log's, the last with the last."""

	def __init__(self, steps, its, budget):
		self.pairs = list(zip(reversed(steps), reversed(its)))[::-1]
		self.n, self.first = len(steps), self.pairs[0][1].k if self.pairs else None
		self.bad = [(s, it) for s, it in self.pairs if not s.agrees(it)]
		sure = [(s, it) for s, it in self.pairs if s.determined]
		rest = [(s, it) for s, it in self.pairs if not s.determined]
		self.n_sure, self.n_rest = len(sure), len(rest)
		self.bad_tokens = [(s, it) for s, it in sure if s.ctx_tokens != it.ctx_tokens]
		self.bad_bounds = [(s, it) for s, it in rest if not s.bounds_hold(it, budget)]
		self.bad_kv = [(s, it) for s, it in self.pairs if s.stats and abs(s.stats["kv_ppm"] / 1e4 - it.kv_pct) > 0.051]
		self.n_prefill = sum(s.ctx_requests > 0 for s, _ in self.pairs)

	@staticmethod
	def show(pairs):
		return "\n".join("log %d: %d ctx %d, %d gen %d; ours: %s" % (it.k, it.ctx_requests, it.ctx_tokens, it.gen_requests,
			it.gen_tokens, s) for s, it in pairs[:20])
