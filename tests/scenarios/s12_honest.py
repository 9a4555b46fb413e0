# SPDX-License-Identifier: Apache-2.0
"""S12: what cannot be known is said so. f) is in s01; g) needs real processes: tests/bpf/t_namespace."""
from scenario import Event, Recording, Scenario, Server, ns, request_of

TOTAL, LOST = 24080, 1204
SINCE, UNTIL = 2000, 2400


def _lost():
	"""1,204 of 24,080 events are lost between 2.0 and 2.4 s; a long prefill is in there, one is not."""
	rec = Recording()
	s = Server(rec, max_step_tokens=4096)
	crowd = [s.request("q%d" % i, -0.7, 16, None) for i in range(48)]
	short = [s.request("end%d" % i, -0.7, 16, 102) for i in range(3)]	# the last token at 2,360
	t = s.step(0, 20, *[q.p(16) for q in crowd + short])
	while t < 7000:
		alive = crowd + [q for q in short if not q.done]
		if t == 1000 or t == 2100:	# the second one nobody saw
			c = s.request("C%d" % t, t - 5, 4000, 1)
			c.at = t
			if t == 1000:
				first = c
			t = s.step(t, t + 180, *[q.d for q in alive] + [c.p(4000)])
		else:
			t = s.step(t, t + 20, *[q.d for q in alive])
	for q in crowd:
		q.out = q.tokens + 1
	t = s.step(t, t + 20, *[q.d for q in crowd])
	_pad(rec, s)
	rows = rec.in_order()
	kept = [e for e in rows if not ns(SINCE) < e.emitted_ns <= ns(UNTIL)]
	lost = len(rows) - len(kept)
	assert (len(rows), lost) == (TOTAL - 1, LOST), (len(rows), lost)
	kept.append(Event(ns(UNTIL), 0, "else", ("lost",), {
		"kind": "lost", "ts_ns": ns(UNTIL), "since_ns": ns(SINCE), "n": lost, "where": "ring"}))
	rec.events = kept
	sc = Scenario("s12a_lost", rec, "5 % of the events are lost, all between 2.0 and 2.4 s")
	for q in crowd:
		sc.blame(q, "prefill", request_of(first), 160)
		sc.excess[q.id] = 160
	for q in short:
		sc.blame(q, "prefill", request_of(first), 160)
		sc.excess[q.id] = 160
	sc.allow("lost_events")
	sc.check("coverage says so", _coverage)
	sc.expect("report", r"1204 LOST \(95\.0 % seen\)")
	sc.check("three requests are incomplete", lambda report, blame: None
		 if report["coverage"]["requests"]["truncated"] == 3 else
		 "%r" % report["coverage"]["requests"])
	sc.no_blame_in = (SINCE, UNTIL)
	sc.hard = False
	return sc


def _coverage(report, blame):
	c = report["coverage"]
	# the mark of the loss is an event, too
	share = 100.0 * (1 - c["lost"] / (c["events"] - 1 + c["lost"]))
	return None if c["lost"] == LOST and abs(share - 95.0) < 0.01 else "%r: %.3f %%" % (c, share)


def _pad(rec, s):
	"""Spans of a thread that nobody waits for, so that the counts are the README's."""
	inside = sum(1 for e in rec.events if ns(SINCE) < e.emitted_ns <= ns(UNTIL))
	more = LOST - inside
	rest = TOTAL - 1 - len(rec.events) - more
	assert more >= 0 and rest >= 0, (inside, len(rec.events))
	for n, since, until in ((more, SINCE, UNTIL), (rest, 2500, 6900)):
		for i in range(n):
			at = since + (until - since) * (i + 0.5) / n
			s.span(190, at - 0.004, at, "sleep", wait="futex", pid=s.api, cpu=1, from_cpu=1)


def _one_stream(rec):
	s = Server(rec)
	r = s.request("R", -0.7, 64, 200)
	t = s.step(0, 20, r.p(64))
	s.decode(t, 99999, 20, r)
	return s, r


def _health(name, what, pattern, never=None, **fields):
	rec = Recording()
	s, r = _one_stream(rec)
	rec.add("gpu", 3000, "gpu_health", tgid=s.core, since_ns=ns(500), **fields)
	sc = Scenario(name, rec, what)
	sc.clean = True
	sc.expect("report", pattern)
	if never:
		sc.never("report", never)
		sc.never("blame", never)
	sc.check("steps and tokens are complete all the same", lambda report, blame: None
		 if report["coverage"]["steps"]["seen"] == 200 and
		 report["requests"][0]["output_tokens"] == 200 else "%r" % report["coverage"])
	return sc


def scenarios():
	return [
		_lost(),
		_health("s12b_broken", "340 graph launches and no record", r"(?i)collection broken:.*340 GPU launches",
			never=r"(?i)gpu idle|gpu was idle|idle gpu", launches=340, records=0, level="graph",
			to_level="launches", trouble="broken"),
		_health("s12c_bad_stamps", "records that end before they begin",
			r"4210\s+of\s+9000.*\s+dropped(?s:.*)those\s+before\s+are\s+kept,\s+since\s+[0-9.]+\s+ms:\s+records\s+of\s+graphs", launches=9000, records=4790,
			bad_records=4210, level="kernels", to_level="graph", trouble="bad_stamps"),
		_health("s12d_budget", "observing costs 64 % of the speed", r"(?is)tainted.*64 ?%",
			launches=9000, records=9000, overhead_ppm=640000, level="kernels", to_level="off",
			trouble="budget"),
		_health("s12e_busy", "another has the device's records", r"nsys\[991\](?s:.*)since\s+[0-9.]+\s+ms\s+launches\s+only;\s+sockets,\s+CPU\s+and\s+steps\s+are\s+complete", launches=9000, records=0,
			level="graph", to_level="launches", trouble="busy", holder="nsys[991]"),
	]
