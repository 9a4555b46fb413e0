# SPDX-License-Identifier: Apache-2.0
"""S6: somebody behind the engine, or inside its process, holds small chunks until a block is full."""
from scenario import Recording, Scenario, Server, Who

CHUNK, N = 247, 200


def _stream(s, write=None):
	"""200 chunks: the first at 500, one every 250, the last at 50,250."""
	r = s.request("R", 0, 64, N, read_done=0.05, submit=0.3)
	t = s.step(0.3, 500, r.p(64), write=write)
	s.decode(t, 99999, 250, r, write=write)
	return r


def _blocks(size):
	"""How many chunks have left when a block is full or all is over: [(when, n)]."""
	held, out = 0, []
	for i in range(1, N + 1):
		held += CHUNK
		if held >= size or i == N:
			out.append((250 + 250 * i, i))
			held = 0
	return out


def _proxy():
	rec = Recording()
	s = Server(rec, delivery=0)
	r = _stream(s)
	for i, at in enumerate(r.written):
		s.delivered(r, at + 0.4, i + 1, "ack", n_bytes=CHUNK * (i + 1))
	blocks = _blocks(16384)
	assert [at for at, _ in blocks] == [17000, 33750, 50250]
	for at, n in blocks:
		s.delivered(r, at, n, "proxy", name="nginx", n_bytes=CHUNK * n)
	rec.add("else", 50300, "claim", ts=0, req=r.number, metric="ttft", value_ns=500000000, tool="vllm",
		field="time_to_first_token", sources=("claims",))
	sc = Scenario("s06_proxy", rec, "a proxy flushes 16 KiB at a time")
	sc.claims = {(r.id, "ttft"): ("V3", {"held_ms": 16500})}
	proxy = Who(("client", "process", "network"), "nginx")
	sc.ttft(r, 17000, {"proxy_buffer": (proxy, 16500)})
	# 67 chunks at 17.0 s; the 68th was written at 17.25 and came at 33.75, the 135th 34.0 and 50.25
	sc.blame(r, "proxy_buffer", proxy, 16500 + 16250)
	sc.excess[r.id] = 16500 + 16250
	sc.gaps(r, n=199, p50=0, mean=167, count={0: 197, 16750: 1, 16500: 1})
	sc.client_side.add(r.id)
	sc.only("proxy_buffer")
	sc.check("the engine's ITL is 250, e2e is 50,250", lambda report, blame: None
		 if report["summary"]["itl_token_ms"]["p50"] == 250 and abs(report["requests"][0]["e2e_ms"] - 50250) < 1
		 else "%r, e2e %r" % (report["summary"]["itl_token_ms"], report["requests"][0]["e2e_ms"]))
	sc.check("on the engine's side the first token is at 500", lambda report, blame: None
		 if abs(report["requests"][0]["ttft_ms"] - 500) < 1 else "ttft_ms %r" %
		 report["requests"][0]["ttft_ms"])
	sc.expect("blame", r"(?i)proxy")
	sc.expect("report", r"at\s+the\s+server's\s+socket\.\s+Clients\s+had\s+more\s+to\s+wait")
	return sc


def _middleware():
	"""The same inside the process: the application yields each chunk, the socket gets 32 KiB at once."""
	rec = Recording()
	s = Server(rec, delivery=0)
	blocks = _blocks(32768)
	r = _stream(s, write=lambda q, t1: min(at for at, _ in blocks if at >= t1 - 1e-6))
	for i in range(N):	# the loop is idle between its wakeups
		s.span(s.front_tid, 251 + 250 * i, 499.9 + 250 * i, "sleep", wait="poll", cpu=1, from_cpu=1)
	sc = Scenario("s06_middleware", rec, "the server process itself holds 32 KiB")
	assert [at for at, _ in blocks] == [33500, 50250]
	sc.blame(r, "app_buffer", None, 50250 - 33500 - 250)
	sc.excess[r.id] = 50250 - 33500 - 250
	sc.ttft(r, 33500, {"app_buffer": (None, 33000)})
	sc.only("app_buffer")
	sc.no_wire = False	# by counts alone nobody joins what is seconds late
	return sc


def _whole():
	"""A proxy that compresses holds all of a short answer: one delivery, at its end."""
	rec = Recording()
	s = Server(rec, delivery=0)
	r = _stream(s)
	s.delivered(r, 50250.5, N, "proxy", name="nginx", n_bytes=9000)
	sc = Scenario("s06_whole", rec, "a proxy hands the answer on when it is whole")
	sc.ttft(r, 50250.5, {"proxy_buffer": (Who(("client", "process", "network"), "nginx"), 49750)})
	sc.client_side.add(r.id)
	sc.gaps(r, n=199, max=0)
	return sc


def scenarios():
	return [_proxy(), _whole(), _middleware()]
