# SPDX-License-Identifier: Apache-2.0
"""S4: a request that never reaches the GPU holds the front end's event loop."""
from scenario import Recording, Scenario, Server, request_of


def _build(name, codes=True):
	rec = Recording()
	s = Server(rec, delivery=1.0)
	a = s.request("A", -1, 64, 80)
	t = s.step(0, 20, a.p(64))
	t = s.decode(t, 500, 20, a, write=lambda q, t1: 500.0 if t1 >= 499 else t1 + 1)
	d = s.request("D", 500, 260000, None, read_done=500.1, status=400)
	s.span(s.front_tid, 500, 900, "run", cpu=3, from_cpu=3)
	if codes:
		s.code(s.front_tid, 500, 900, "tokenizer", "tokenizers.abi3.so", req=d)
	s.refuse(d, 899.9)
	t = s.decode(t, 900, 20, a, write=lambda q, t1: 900.0)
	e = s.request("E", 520, 100, 30, read_done=900, submit=901)
	t = s.step(t, t + 20, a.d)
	t = s.step(t, t + 25, a.d, e.p(100))
	s.decode(t, 99999, 20, a, e)
	sc = Scenario(name, rec, "260,000 tokens are tokenized on the loop that writes answers")
	sc.blame(a, "event_loop", request_of(d) if codes else None, 380)
	sc.excess[a.id] = 380
	sc.allow("prefill", request_of(e))	# 5 ms of E's own prompt
	sc.ttft(e, 426, {"event_loop": (request_of(d) if codes else None, 380), "own_front": (None, 1),
			 "step_wait": (None, 19), "own_prefill": (None, 25), "own_delivery": (None, 1)})
	assert _burst(a)
	sc.gaps(a, max=400, count={400: 1, 0: 19})
	sc.check("one delivery gap of 400, then 20 tokens together", lambda report, blame: _then_together(
		report["requests"][0]["gaps"]))
	sc.check("the engine's cadence is 20 throughout", lambda report, blame: _cadence(report, a, e))
	sc.check("D has no step", lambda report, blame: None if not report["requests"][1]["seqs"] and
		 report["requests"][1]["http_status"] == 400 else "%r" % report["requests"][1])
	sc.expect("why:E", r"own\s+TTFT\s+would\s+read\s+45\.0\s+ms")
	sc.check("the engine's own TTFT from points", lambda report, blame: _engine_ttft(report["requests"][2]["points"]))
	sc.only("event_loop", "prefill", "step_wait")
	sc.never("report", r"(?i)neighbour|graph miss|CPU quota")
	return sc


def _then_together(gaps):
	ms = [g[1] for g in gaps]
	at = ms.index(max(ms))
	return None if max(ms[at + 1:at + 20]) < 0.001 < ms[at + 20] else "%r" % ms[at:at + 21]


def _cadence(report, a, e):
	got = next(r for r in report["requests"] if r["id"] == a.id)["decode_ms"]
	itl = report["summary"]["itl_token_ms"]
	if abs(got - (a.outputs[-1] - a.outputs[0])) > 0.01 or itl["p50"] != 20 or itl["max"] > 25.001:
		return "decode_ms %r, ITL per token %r" % (got, itl)
	return None


def _engine_ttft(points):
	ms = points["first_token_engine"] - points["req_last_byte"]
	return None if abs(ms - 45) < 0.1 else "it is %.3f" % ms


def _burst(a):
	together = [g for g in a.gaps if g < 0.001]
	return max(a.gaps) == 400 and len(together) == 19


def scenarios():
	return [_build("s04_event_loop"), _build("s04_no_stacks", codes=False)]
