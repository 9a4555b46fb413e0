# SPDX-License-Identifier: Apache-2.0
"""S11: a device that takes longer for the same work: a neighbour, a lower clock, a compilation, or nobody knows."""
from scenario import Recording, Scenario, Server, Who, request_of

FULL, CAPPED = 1965, 1580


def _steps(s, r, t, n, ms, busy=None, **gpu):
	for _ in range(n):
		s.gpu_step(t, t + ms, busy or ms - 0.2, batch=1, launches=9, graph_launches=1, graph="hit",
			   padded_to=1, **gpu)
		t = s.step(t, t + ms, r.d)
	return t


def _begin(out):
	rec = Recording()
	s = Server(rec, max_step_tokens=8192)
	r = s.request("R", -0.7, 1, out)
	t = s.step(0, 10, r.p(1))
	return rec, s, r, t


def _probe(s, r, name, t, ms):
	"""A prompt of 4,096 beside R's decode."""
	q = s.request(name, t - 1, 4096, 1)
	s.gpu_step(t, t + ms, ms - 1, batch=2, launches=1185, graph="none")
	return q, s.step(t, t + ms, r.d, q.p(4096))


def _three():
	rec, s, r, t = _begin(700)
	t = _steps(s, r, t, 39, 10)
	p1, t = _probe(s, r, "P1", t, 300)
	t = _steps(s, r, t, 30, 10)
	assert t == 1000
	s.gpu_state(0, 1000, FULL)
	t = _steps(s, r, t, 100, 20)
	s.gpu_state(1000, 3000, FULL, why=["NEIGHBOUR"], by=4242, name="embedder", pct=50)
	t = _steps(s, r, t, 78, 10.5)
	p2, t = _probe(s, r, "P2", t, 373)
	t = _steps(s, r, t, 77, 10.5)
	s.gpu_state(3000, t, CAPPED, why=["POWER"])
	capped = t
	while t < 6000:
		t = _steps(s, r, t, 1, 10)
	compiled = t
	s.span(s.loop_tid, t + 5, t + 2395, "run", cpu=2, from_cpu=2)
	s.code(s.loop_tid, t + 5, t + 2395, "compile", "triton/compiler.py:compile")
	t = _steps(s, r, t, 1, 2400, busy=9.8, flags=["COLD"])
	s.gpu_state(capped, t, FULL)
	t = _steps(s, r, t, 60, 10)
	s.gpu_state(compiled + 2400, t, FULL)
	s.decode(t, 99999, 10, r)
	sc = Scenario("s11_three_causes", rec, "a neighbour, a power cap, a first use")
	sc.blame(r, "gpu_neighbour", Who("process", "4242", "embedder"), 1000)
	sc.blame(r, "gpu_clock", None, 155 * 0.5 + 73)
	sc.blame(r, "compile", None, 2390)
	sc.allow("prefill", request_of(p1))
	sc.allow("prefill", request_of(p2))
	sc.excess[r.id] = 1000 + 150.5 + 2390 + 580
	sc.expect("blame", r"4242|embedder")
	sc.expect("blame", r"1580.*1965")
	sc.how("gpu_neighbour", r"100 steps of 20\.0 ms lost 10\.0 ms each to it, at its usual clock \(1965 MHz\)", steps=100,
	       lost_ms=1000)
	sc.how("gpu_clock", r"at 1580 instead of 1965 MHz \(-19\.6 %\): decode took 5\.0 % more, steps with prefill 24\.[34] %",
	       clock__decode_pct=5.0, clock__prefill_pct=24.4)
	sc.how("compile", r"1 step of 2\.40 s lost 2\.39 s to it; GPU busy 0\.4 %", steps=1, lost_ms=2390)
	return sc


def _both():
	"""A neighbour and a power cap at once: the clock's share first, by its ratio; the rest is the neighbour's."""
	rec, s, r, t = _begin(400)
	t = _steps(s, r, t, 99, 10)
	s.gpu_state(0, t, FULL)
	t0 = t
	t = _steps(s, r, t, 100, 20)
	s.gpu_state(t0, t, CAPPED, why=["POWER", "NEIGHBOUR"], by=4242, name="embedder", pct=40)
	t0 = t
	t = _steps(s, r, t, 100, 10)
	s.gpu_state(t0, t, FULL)
	s.decode(t, 99999, 10, r)
	clock = 100 * 10 * (FULL / CAPPED - 1)
	sc = Scenario("s11_both", rec, "a power cap and a neighbour at once")
	sc.blame(r, "gpu_clock", None, clock)
	sc.blame(r, "gpu_neighbour", Who("process", "4242", "embedder"), 1000 - clock)
	sc.excess[r.id] = 1000
	for mechanism in ("gpu_clock", "gpu_neighbour"):
		sc.how(mechanism, r"in 100 of them .* both .*: the clock's share is by its ratio, the rest is the neighbour's",
		       steps=100, clock__steps_with_both=100)
	sc.only("gpu_clock", "gpu_neighbour")
	return sc


def _no_sign():
	"""Decode takes 20 % more for a while; clock and neighbours are looked at and show nothing."""
	rec, s, r, t = _begin(500)
	t = _steps(s, r, t, 250, 10)
	t = _steps(s, r, t, 100, 12)
	t = _steps(s, r, t, 149, 10)
	for k in range(int(t // 1000)):
		s.gpu_state(1000 * k, 1000 * (k + 1), FULL)
	sc = Scenario("s11_no_sign", rec, "a slow mode without any sign")
	sc.blame(r, "unexplained", None, 200)
	sc.excess[r.id] = 200
	sc.check("clock and neighbour are ruled out", lambda report, blame: None
		 if {"gpu_clock", "gpu_neighbour"} <= set(blame["blame"]["ruled_out"]) else
		 "ruled out: %r" % blame["blame"]["ruled_out"])
	return sc


def scenarios():
	return [_three(), _both(), _no_sign()]
