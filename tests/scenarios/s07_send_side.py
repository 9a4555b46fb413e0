# SPDX-License-Identifier: Apache-2.0
"""S7: what the server wrote did not leave: Nagle with delayed acknowledgements; a client that reads slowly."""
from scenario import Recording, Scenario, Server, Who, ns


def _nagle(name, client=False):
	"""Ten small writes at 0, 5 ... 45; segments leave at 0, 40 (eight of them) and 80 (one)."""
	rec = Recording()
	s = Server(rec, delivery=0)
	r = s.request("R", 989.3, 64, 10)
	t = s.step(990, 1000, r.p(64))
	s.decode(t, 99999, 5, r)
	assert [round(w - 1000) for w in r.written] == list(range(0, 50, 5))
	held = dict(conn=r.number, req=r.number, fd=31, local_port=s.port, peer_port=40000 + r.number, why="nagle",
		    tgid=s.api, sources=("held",))
	rec.add("net", 1040, "send_held", since_ns=ns(1005), ack_ns=ns(1040), n_writes=8, bytes=2000, **held)
	rec.add("net", 1080, "send_held", since_ns=ns(1045), ack_ns=ns(1080), n_writes=1, bytes=250, **held)
	if client:
		for at, n in ((1000, 1), (1040, 9), (1080, 10)):
			s.delivered(r, at, n, "client", name="bench", n_bytes=250 * n)
	sc = Scenario(name, rec, "small writes held for an acknowledgement")
	sc.blame(r, "nagle", None, 70)
	sc.excess[r.id] = 70
	sc.client_side.add(r.id)
	sc.gaps(r, n=9, max=40)
	sc.check("done at 80 instead of 45", lambda report, blame: _done(report, blame))
	sc.total("nagle", 70)
	sc.only("nagle")
	sc.expect("why:R", r"35\.0\s+ms\s+held\s+by\s+the\s+kernel:\s+8\s+writes,\s+2000")
	sc.expect("why:R", r"35\.0\s+ms\s+held\s+by\s+the\s+kernel:\s+1\s+write,\s+250")
	sc.expect("why:R", r"(?i)nagle")
	sc.expect("why:R", r"fd 31|port %d|%d" % (40000 + r.number, s.port))
	return sc


def _done(report, blame):
	out = sum(g[1] for g in blame["requests"][0]["gaps"])
	engine = report["requests"][0]["decode_ms"]
	return None if abs(out - 80) < 0.1 and abs(engine - 45) < 0.1 else "%.3f and %.3f" % (out, engine)


RATE, KERNEL, PIECE = 2.0, 32768, 250	# bytes/ms, bytes, bytes a token


def _slow_reader(name, client):
	"""400 tokens of 250 bytes, one every 20; the reader takes 2,000 bytes a second."""
	rec = Recording()
	s = Server(rec, delivery=0)
	r = s.request("R", -0.7, 64, 400)

	def write(q, t1):	# it is begun when all before it has found room
		return max(t1, (PIECE * len(q.written) - KERNEL) / RATE)

	t = s.step(0, 20, r.p(64), write=write)
	s.decode(t, 99999, 20, r, write=write)
	last = r.written[-1]
	done = (PIECE * 400) / RATE
	rec.add("net", last, "send_blocked", tgid=s.api, since_ns=ns(3120), drained_ns=ns(done), conn=r.number,
		req=r.number, app_queue_bytes=51232, kernel_bytes=KERNEL, sources=("net1",))
	if client:
		for i in range(400):
			s.delivered(r, max(r.outputs[i], PIECE * (i + 1) / RATE), i + 1, "client", name="bench",
				    n_bytes=PIECE * (i + 1))
	sc = Scenario(name, rec, "the client reads 2,000 bytes a second")
	who = Who(("client", "network", "process"))
	sc.no_wire = False	# by counts alone nobody joins what is seconds late
	if client:	# 125 each; before the first write is blocked (25 of them) nothing tells who is slow
		sc.blame(r, "slow_client", who, 374 * (125 - 20), upto=399 * 125 + 1)
		sc.excess[r.id] = 399 * (125 - 20)
		sc.gaps(r, n=399, mean=125)
		sc.client_side.add(r.id)
	else:
		sc.blame(r, "slow_client", who, last - 20 - 399 * 20, upto=last - 3120 + 125)
		sc.excess[r.id] = last - 20 - 399 * 20
	sc.check("its decode time is the engine's", lambda report, blame: None
		 if abs(report["requests"][0]["decode_ms"] - 399 * 20) < 1 else "decode_ms %r" %
		 report["requests"][0]["decode_ms"])
	sc.expect("blame", r"(?i)client")
	if client:
		sc.expect("report", r"at\s+the\s+server's\s+socket\.\s+Clients\s+had\s+more\s+to\s+wait")
		sc.expect("why:R", r"at\s+its\s+client\s+it\s+took")
	sc.expect("why:R", r"from\s+312[01]\s+ms\s+on:\s+up\s+to\s+51\.2\s+kB\s+waited\s+in\s+the\s+server")
	sc.expect("why:R", r"it\s+had\s+all\s+42\.0\s+s\s+after\s+the\s+engine's\s+last\s+token")
	sc.only("slow_client", *(["unexplained"] if client else []))
	return sc


def scenarios():
	return [_nagle("s07_nagle"), _nagle("s07_nagle_client", client=True),
		_slow_reader("s07_slow_reader", client=False), _slow_reader("s07_slow_reader_client", client=True)]
