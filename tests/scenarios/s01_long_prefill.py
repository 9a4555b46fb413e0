# SPDX-License-Identifier: Apache-2.0
"""S1: a long prompt is computed in the steps in which others decode."""
from scenario import Recording, Scenario, Server, request_of


def _two_decoders(rec, kind="vllm"):
	s = Server(rec, kind, max_step_tokens=4096)
	a = s.request("A", -0.7, 64, 101)
	b = s.request("B", -0.7, 64, 101)
	t = s.step(0, 20, a.p(64), b.p(64))
	return s, a, b, s.decode(t, 1020, 20, a, b)


def _numbers(sc, a, b):
	for q in (a, b):
		sc.gaps(q, n=100, mean=23.2, p50=20, p95=20, p99=180, count={180: 2, 20: 98})
	sc.total("prefill", 640)
	sc.only("prefill", "step_wait")
	sc.never("report", r"(?i)throttl|garbage|neighbour|graph miss")


def _shared(name, kind, rec=None):
	rec = rec or Recording()
	s, a, b, t = _two_decoders(rec, kind)
	c = s.request("C", 1005, 8188, 50)
	t = s.step(t, t + 180, a.d, b.d, c.p(4094))
	t = s.step(t, t + 180, a.d, b.d, c.p(4094))
	s.decode(t, 9999, 20, a, b, c)
	sc = Scenario(name, rec, "a long prefill shares two steps with two decoders")
	for q in (a, b):
		sc.blame(q, "prefill", request_of(c), 320)
		sc.excess[q.id] = 320
	sc.ttft(c, 375, {"step_wait": (None, 15), "own_prefill": (None, 360)})
	sc.expect("why:C", r"8188\s+tokens\s+in\s+2\s+steps")
	sc.check("what if nobody's prefill were there", lambda report, blame: _what_if(blame))
	_numbers(sc, a, b)
	return sc


def _what_if(blame):
	for w in blame["what_if"]:
		if w["without"] == "prefill":
			return None if abs(w["tpot_p99_ms"] - 20) < 0.25 else "TPOT p99 without prefill: %r" % w
	return "no what_if without prefill"


def _three_chunks():
	"""8,192 tokens beside two decoders are 4094 + 4094 + 4: the third chunk is no stall."""
	rec = Recording()
	s, a, b, t = _two_decoders(rec)
	c = s.request("C", 1005, 8192, 50)
	t = s.step(t, t + 180, a.d, b.d, c.p(4094))
	t = s.step(t, t + 180, a.d, b.d, c.p(4094))
	third = t + 20
	t = s.step(t, t + 20, a.d, b.d, c.p(4))
	s.decode(t, 9999, 20, a, b, c)
	sc = Scenario("s01_three_chunks", rec, "a last chunk of four tokens is no stall")
	for q in (a, b):
		sc.blame(q, "prefill", request_of(c), 320)
		sc.excess[q.id] = 320
		index = next(i for i, w in enumerate(q.written) if abs(w - third) < 1)
		sc.gaps(q, quiet=index)
	sc.ttft(c, 395, {"step_wait": (None, 15), "own_prefill": (None, 380)})
	return sc


def _alone():
	"""The same prompt while nobody decodes: nobody is to blame."""
	rec = Recording()
	s, a, b, t = _two_decoders(rec)
	t = s.decode(t, 9999, 20, a, b)
	c = s.request("C", t + 5, 8188, 50)
	t0 = t + 5.3
	t = s.step(t0, t0 + 180, c.p(4096))
	t = s.step(t, t + 180, c.p(4092))
	s.decode(t, 99999, 20, c)
	sc = Scenario("s01_nobody_decodes", rec, "a long prefill that nobody waits for")
	sc.ttft(c, 360.5, {"own_prefill": (None, 360)})
	sc.clean = True
	return sc


def _clock_steps():
	"""S12 f): the wall clock jumps by 5 s meanwhile; intervals know nothing of it."""
	rec = Recording()
	for k, at in enumerate((0, 400, 800, 1200, 1600)):
		wall = 1700000000000 + at + (5000 if at > 1100 else 0)
		rec.add("else", at, "clock", realtime_ns=wall * 1000000, err_ns=500)
	sc = _shared("s12f_clock_steps", "vllm", rec)
	sc.check("no interval is negative", _no_negative)
	sc.total("prefill", 640, within=0.1)
	return sc


def _no_negative(report, blame):
	for r in report["requests"]:
		for key, value in r.items():
			if key.endswith("_ms") and isinstance(value, (int, float)) and value < 0:
				return "%s of %s is %r" % (key, r["id"], value)
	return None


def scenarios():
	return [_shared("s01_long_prefill", "vllm"), _shared("s01_llama", "llama"), _three_chunks(), _alone(),
		_clock_steps()]
