# SPDX-License-Identifier: Apache-2.0
"""S9: chunks that hold several tokens are no stalls; a detokenizer that is saturated is."""
from scenario import BASE_MS, Recording, Scenario, Server


def _speculative():
	rec = Recording()
	s = Server(rec, delivery=0)
	r = s.request("R", -0.3, 64, 81, read_done=-0.2, submit=-0.1)
	t = s.step(0, 100, r.p(64))
	for i in range(30):
		t = s.step(t, t + 24, r.spec(4, (3, 3, 2)[i % 3]))
	# What the other tools' metric would say of it: 24.0, for each chunk.
	for tool, field in (("bench", "mean_itl_ms"), ("vllm", "inter_token_latency")):
		rec.add("else", t + 1, "claim", ts=0, req=r.number, metric="itl", value_ns=24000000, tool=tool,
			field=field, sources=("claims",))
	sc = Scenario("s09_speculative", rec, "80 tokens in 30 steps of 24: 9.0 per token, not 24")
	sc.clean = True
	sc.check("TPOT is 9.0", lambda report, blame: None
		 if abs(report["requests"][0]["tpot_ms"] - 9.0) < 0.01 else "tpot_ms %r" %
		 report["requests"][0]["tpot_ms"])
	sc.claims = {(r.id, "itl"): ("V7", {"truth_ms": 9.0, "claim_ms": 24.0, "factor": 2.667})}
	sc.check("24.0 per chunk, and per step", lambda report, blame: None
		 if report["summary"]["itl_chunk_ms"]["p50"] == 24 and report["summary"]["itl_token_ms"]["p50"] == 24
		 else "%r" % report["summary"])
	sc.check("both tools are told why", lambda report, blame: _rates(report["claims"]))
	return sc


def _rates(claims):
	said = [c["tool"] for c in claims if "a chunk holds 2.67 tokens: 111.1 tokens/s in 41.7 chunks/s" in c["text"]]
	return None if sorted(said) == ["bench", "vllm"] else "%r" % [c["text"] for c in claims]


def _detokenizer(name, thread):
	"""1,024 sequences, a step every 39; one thread turns their outputs into text, 180 for a step's. It is recorded, or no
	thread is: one of which long runs would be told, and are not, was not saturated."""
	rec = Recording()
	s = Server(rec, threads=thread)
	n, steps = 1024, 20
	crowd = [s.request("q%d" % i, -2, 4, steps) for i in range(n)]
	share = 180 / n

	def write(q, t1):
		return 39 + 180 * (len(q.written)) + share * (q.number)

	if thread:
		s.thread("detokenizer", s.api, 111, "detokenizer")
	for k in range(steps):
		s.step(39 * k, 39 * (k + 1), *[q.p(4) if k == 0 else q.d for q in crowd], write=write)
	if thread:
		s.span(111, 39, 3639, "run", pid=s.api, cpu=4, from_cpu=4)
		s.code(111, 39, 3639, "detokenizer", "detokenizer.py:decode", pid=s.api)
	assert abs(crowd[-1].written[-1] - 3639) < 1e-6
	sc = Scenario(name, rec, "the detokenizer takes 180 for what the engine gives every 39")
	for q in crowd[:1] + crowd[500:501] + crowd[-1:]:
		sc.gaps(q, n=19, p50=180, max=180)
	for q in crowd:
		# from the second gap on: no delivery was undisturbed, so what is usual for the first one?
		sc.blame(q, "detokenizer", None, 18 * (180 - 39), upto=19 * 180)
		sc.excess[q.id] = 19 * (180 - 39)
	sc.how("detokenizer", r"every 39\.0 ms, they were written every 180 ms; .* those of 16 steps were pending, and the "
	       r"last one was written 2\.86 s later: neither the GPU nor the scheduler", backlog__pending_steps=16,
	       backlog__late_ms=2859, backlog__step_ms=39, backlog__written_every_ms=180)
	sc.check("engine done at 780, the last one written at 3,639", lambda report, blame: _ends(blame))
	sc.only("detokenizer")
	sc.no_wire = False	# 1,024 sequences with equal counts
	sc.never("blame", r"(?i)neighbour|graph miss")
	return sc


def _ends(blame):
	first = BASE_MS - blame["t0_ns"] / 1e6
	row = next(h["backlog"] for h in blame["blame"]["how"] if h["mechanism"] == "detokenizer")
	made, written = row["made_at_ms"] - first, row["written_at_ms"] - first
	return None if abs(made - 780) < 0.1 and abs(written - 3639) < 0.1 else "%.3f, %.3f" % (made, written)


def scenarios():
	return [_speculative(), _detokenizer("s09_detokenizer", True),
		_detokenizer("s09_detokenizer_unseen", False)]
