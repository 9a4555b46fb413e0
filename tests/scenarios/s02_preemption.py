# SPDX-License-Identifier: Apache-2.0
"""S2: a sequence loses its place to another's growth, waits, and is computed again."""
from scenario import Recording, Scenario, Server, ns, request_of


def _build(name, what, said_who=True, said=True, flagged=True):
	rec = Recording()
	s = Server(rec, max_step_tokens=8192)
	s.kv_ppm = 996000
	b = s.request("B", 299, 4036, 81)
	c = s.request("C", 299, 64, None)
	t = s.step(300, 500, b.p(4036), c.p(64))
	t = s.decode(t, 1075, 25, b, c)
	a = s.request("A", t - 24, 16, 81)
	t = s.step(t, t + 25, a.p(16), b.d, c.d)
	t = s.decode(t, 2000, 25, a, b, c)
	t = s.decode(t, 2575, 25, a, c)
	c.out = c.tokens + 1		# it ends at 2600: then there is room
	t = s.step(t, t + 25, a.d, c.d)
	if said:
		# The engine tells of it with the victim's next output; its step is emitted first.
		rec.add("engine", 2800, "seq_preempt", ts=2000, tgid=s.core, slot=b.slot, lost_tokens=4096,
			resumed_ns=ns(2600), for_slot=c.slot + 1 if said_who else 0,
			sources=("steps%d" % s.core,))
	t = s.step(t, t + 200, a.d, b.p(4096, again=flagged, pos=0, guess=not said, out=1))
	s.decode(t, 99999, 25, a, b)

	sc = Scenario(name, rec, what)
	prov = None if said and said_who else "inferred"
	sc.blame(b, "preempted", request_of(c), 600, prov=prov)
	sc.blame(b, "recompute", request_of(c), 200)
	sc.blame(a, "recompute", request_of(b), 175, root=request_of(c))
	sc.excess[b.id], sc.excess[a.id] = 775, 175
	sc.gaps(b, n=80, mean=34.7, p99=800)
	sc.gaps(a, n=80, mean=27.2)
	sc.parts(b, 800, preempted=600, recompute=200, own_decode=0)
	sc.parts(a, 200, recompute=175, own_decode=25)
	sc.only("preempted", "recompute", "prefill", "step_wait")	# A's 16 tokens, and its wait
	sc.expect("why:B", r"4,?096")
	if said:
		sc.expect("why:B", r"(?s)book\s+the\s+600\s+ms\s+parked.*200\s+ms.*as\s+decode.*"
			  r"queue\s+time\s+has\s+0\s+of\s+the\s+600\s+ms")
	sc.check("the wait is no queue", lambda report, blame: None if report["requests"][0]["queue_ms"] < 2 else
		 "queue_ms %r" % report["requests"][0]["queue_ms"])
	sc.expect("why:B", r"(?i)preempt|parked")
	return sc


def scenarios():
	return [
		_build("s02_preemption", "preempted and computed again, as the engine says"),
		_build("s02_who_not_said", "the engine does not say whose growth it was", said_who=False),
		_build("s02_no_events", "no word of a preemption: its steps show that it computes again",
		       said=False),
		_build("s02_absence", "nor a mark on the step: it is away, then comes a prefill-sized step",
		       said=False, flagged=False),
	]
