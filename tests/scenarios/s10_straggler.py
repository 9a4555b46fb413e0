# SPDX-License-Identifier: Apache-2.0
"""S10: four ranks of tensor parallelism; one is late, all are bound by the wire, or one never comes."""
from scenario import Recording, Scenario, Server, Who


def _server(rec):
	s = Server(rec)
	for rank in range(4):
		s.thread("launch", 300 + rank, 300 + rank, "VLLM::Worker_TP", rank=rank)
	return s


def _ranks(s, t0, t1, collective, transfer, busy, late=None, batch=3):
	for rank in range(4):
		s.gpu_step(t0, t1, busy[rank], rank=rank, pid=300 + rank, collective=collective[rank],
			   transfer=transfer, late=late[rank] if late else 0, launches=9, graph_launches=1,
			   batch=batch, graph="hit", padded_to=batch)


def _late():
	rec = Recording()
	s = _server(rec)
	rs = [s.request(n, -0.7, 64, 200) for n in "ABC"]
	t = s.step(0, 20, *[q.p(64) for q in rs])
	bad = 0
	k = 0
	while not rs[0].done:
		k += 1
		if k % 15 == 0 and bad < 10:
			bad += 1
			_ranks(s, t, t + 58, (46, 46, 2, 46), 2, (58, 58, 14, 58), late=(0, 0, 44, 0))
			s.span(302, t, t + 44, "run", pid=302, flags=["MIGRATED"], cpu=5 + bad, from_cpu=4 + bad)
			t = s.step(t, t + 58, *[q.d for q in rs])
		else:
			_ranks(s, t, t + 14, (2, 2, 2, 2), 2, (14, 14, 14, 14))
			t = s.step(t, t + 14, *[q.d for q in rs])
	assert bad == 10
	sc = Scenario("s10_straggler", rec, "rank 2 is 44 late in ten steps")
	for q in rs:
		sc.blame(q, "collective_wait", Who("rank", "2"), 440, root=Who("thread", "Worker_TP CPU "))
		sc.parts(q, 58, collective_wait=44, own_decode=14)
		sc.excess[q.id] = 440
	sc.expect("blame", r"(?i)rank 2")
	sc.how("collective_wait", r"rank 2 came late to collectives in 10 steps: ranks 0, 1, 3 waited 44\.0 ms for it, moving "
	       r"data took 2\.00 ms; computing took 12\.0 ms, unchanged \(12\.0 ms in other steps\).*utilization 100 % .* spin", steps=10,
	       late_rank__rank=2, late_rank__wait_ms=44, late_rank__transfer_ms=2, late_rank__compute_ms=12,
	       late_rank__compute_usual_ms=12, late_rank__waiting_busy_pct=100)
	sc.only("collective_wait", "prefill")
	return sc


def _bound():
	"""All ranks alike spend 733 of 802 in collectives: nobody is late."""
	rec = Recording()
	s = _server(rec)
	r = s.request("R", -0.7, 64, 40)
	t = s.step(0, 802, r.p(64))
	while not r.done:
		_ranks(s, t, t + 802, (733, 733, 733, 733), 733, (802, 802, 802, 802), batch=1)
		t = s.step(t, t + 802, r.d)
	sc = Scenario("s10_bound", rec, "collectives take 733 of 802 on all ranks alike")
	sc.never("blame", r"(?i)late rank|rank [0-3] (is|was)")
	sc.allow("communication", None)
	sc.excess[r.id] = 1
	sc.check("no straggler", lambda report, blame: None if all(
		b["mechanism"] != "collective_wait" or b["ms"] < 1 for b in blame["blame"]["by_mechanism"])
		else "a straggler is named")
	sc.expect("report", r"bound\s+by\s+communication:\s+collectives\s+take\s+733\s+of\s+802\s+ms")
	return sc


def _hang():
	"""Rank 3 never enters; the others wait in the collective for a minute, then the capture ends."""
	rec = Recording()
	s = _server(rec)
	r = s.request("R", -0.7, 64, 500)
	t = s.step(0, 20, r.p(64))
	for _ in range(100):
		_ranks(s, t, t + 14, (2, 2, 2, 2), 2, (14, 14, 14, 14), batch=1)
		t = s.step(t, t + 14, r.d)
	for rank in range(3):
		s.gpu_step(t, t + 60000, 60000, rank=rank, pid=300 + rank, collective=59988, flags=["OPEN"],
			   launches=9, graph_launches=1, batch=1, graph="hit")
	sc = Scenario("s10_hang", rec, "rank 3 never enters the collective")
	sc.expect("report", r"HANG:\s+rank\s+3\s+never\s+entered.*\s+rank\s+0,\s+1,\s+2\s+have\s+been\s+for\s+60\.0\s+s")
	sc.never("report", r"bound by communication")	# no averages
	sc.clean = True
	return sc


def scenarios():
	return [_late(), _bound(), _hang()]
