# SPDX-License-Identifier: Apache-2.0
"""S8: what gateways and load generators say of requests, against the wire."""
import re

from scenario import Recording, Scenario, Server


class Truth:
	"""Requests on the wire alone: no step is seen."""

	def __init__(self):
		self.rec = Recording()
		self.s = Server(self.rec, "llama", threads=False, delivery=0)
		self.at = 0	# ms: begin of the case

	def stream(self, name, first_byte, writes, flags=None, headers=None):
		"""Times from the begin of the case."""
		s, t0 = self.s, self.at
		q = s.request(name, t0 + first_byte, 64, None)
		if headers is not None:
			self.rec.add("wire", t0 + headers, "resp_begin", req=q.number, status=200, body="sse",
				     tgid=s.api, tid=s.front_tid, sources=(q.wire,))
		for i, w in enumerate(writes):
			s.chunk(q, t0 + w, flags=("TEXT",) if not flags else (flags(w),))
		q.tokens = len(writes)
		s.finish(q, t0 + writes[-1])
		return q

	def claim(self, q, tool, metric, field, ms, began=0):
		self.rec.add("else", self.rec.t1, "claim", ts=self.at + began, req=q.number, metric=metric,
			     value_ns=round(ms * 1e6), tool=tool, field=field, sources=("claims",))

	def over(self, ms):
		self.at += ms + 1000


def _even(first, last, n):
	return [first + (last - first) * i / (n - 1) for i in range(n)]


def _all():
	t = Truth()
	rec = t.rec
	want = {}
	r = t.stream("R1", 7, _even(107, 4513.9, 128))
	t.claim(r, "aibrix", "ttft", "ttft", 4515)
	t.claim(r, "aibrix", "total", "total", 4515)
	want[r.id, "ttft"] = ("V1", {"truth_ms": 107, "factor": 42.2})
	want[r.id, "total"] = (None, {})
	t.over(4600)
	writes = _even(1175, 192851, 13228)
	r = t.stream("R2", 0, writes, flags=lambda w: "REASONING" if w < 183581 - 1 else "TEXT")
	t.claim(r, "aisix", "ttft", "ttft", 183581)
	want[r.id, "ttft"] = ("V2", {"truth_ms": 1175})
	t.over(192900)
	r = t.stream("R3", 0, _even(200, 9000, 200))
	for i in range(200):
		if i == 199 or (i + 1) % 10 == 0:
			t.s.delivered(r, t.at + max(8000, r.written[i] - t.at), i + 1, "proxy", name="gateway")
	t.claim(r, "gateway", "ttft", "ttft", 200)
	want[r.id, "ttft"] = ("V3", {"held_ms": 7800})
	r3 = r
	t.over(9100)
	r = t.stream("R4", 0, _even(1000, 1200, 11))
	t.claim(r, "kong", "tpot", "time_per_token", 109)
	want[r.id, "tpot"] = ("V5", {"truth_ms": 20, "factor": 5.45})
	t.over(1300)
	r = t.stream("R5", 0, _even(108, 4514, 128))
	t.claim(r, "litellm", "total", "response_time", 108)
	want[r.id, "total"] = ("V6", {"truth_ms": 4514})
	t.over(4600)
	r = t.stream("R6", 0, _even(107, 1500, 60), headers=9)
	t.claim(r, "nginx", "ttft", "upstream_header_time", 9)
	want[r.id, "ttft"] = ("V4", {"truth_ms": 107})
	t.over(1600)
	r = t.stream("R7", 1141, _even(1181, 2500, 60))
	t.claim(r, "gateway", "ttft", "ttft", 1181)
	want[r.id, "ttft"] = (None, {"before_host_ms": 1141})
	r7 = r
	t.over(2600)
	r = t.stream("R8", 0, _even(1331, 5000, 100))
	for i, w in enumerate(r.written):
		t.s.delivered(r, w + 0.3, i + 1, "ack")
	t.claim(r, "bench", "ttft", "ttft", 134173)
	want[r.id, "ttft"] = ("V11", {"held_ms": 132842, "truth_ms": 1331})
	t.over(5100)
	for i in range(20):	# honest ones: what they say is what the wire shows
		first, period, n = 80 + 7 * i, 15 + i % 5, 40 + i
		writes = [first + period * k for k in range(n)]
		r = t.stream("clean%d" % i, 0, writes)
		t.claim(r, "litellm", "ttft", "completion_start_time", first + 0.8)
		t.claim(r, "kong", "tpot", "time_per_token", period)
		t.claim(r, "nginx", "total", "request_time", writes[-1] + 1.2)
		want[r.id, "ttft"] = want[r.id, "tpot"] = want[r.id, "total"] = (None, {})
		t.over(writes[-1] + 50)
	sc = Scenario("s08_claims", rec, "eight claims of which seven mislead, and twenty that are true")
	sc.claims = want
	# 13,227 tokens in 9.27 s, were the stamp of R2 true
	sc.check("R2 is told by its rate", lambda report, blame: None if any(
		re.search("1,?42[678]", c["text"]) for c in report["claims"]) else "no 1,427 tokens/s")
	sc.hard = False
	sc.client_side.add(r3.id)
	sc.allow("proxy_buffer")
	sc.ttft(r7, 1181, {"before_host": (None, 1141)})
	return sc


def scenarios():
	return [_all()]
