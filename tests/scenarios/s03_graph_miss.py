# SPDX-License-Identifier: Apache-2.0
"""S3: a batch that no captured graph fits runs eagerly; one that is padded does not."""
from scenario import Recording, Scenario, Server, request_of


def _crowd(s, n, out, at=-0.7):
	return [s.request("q%d" % i, at, 64, out) for i in range(n)]


def _graph(s, t0, t1, busy, batch, padded_to):
	s.gpu_step(t0, t1, busy, launches=9, graph_launches=1, batch=batch,
		   graph="padded" if padded_to > batch else "hit", padded_to=padded_to)


def _miss(name="s03_graph_miss", launches=False):
	"""launches: probes counted them, and nobody saw the device."""
	rec = Recording()
	s = Server(rec)
	crowd = _crowd(s, 48, 260)
	t = s.step(0, 40, *[q.p(64) for q in crowd])
	s.gpu_step(0, 40, 39, launches=1185, batch=48, graph="none")
	while t < 1000 - 1e-6:
		_graph(s, t, t + 10, 9.8, 48, 48)
		t = s.step(t, t + 10, *[q.d for q in crowd])
	z = s.request("Z", 999.5, 64, 100)
	s.gpu_step(t, t + 30, 29, launches=1185, batch=49, graph="none")
	t = s.step(t, t + 30, *[q.d for q in crowd] + [z.p(64)])
	while not z.done:
		s.gpu_step(t, t + 34, 10.0, launches=1185, batch=49, graph="miss")
		if launches:
			s.launches(t + 1, 32, 1185, 0, t + 34)
		t = s.step(t, t + 34, *[q.d for q in crowd] + [z.d])
	assert abs(t - 4396) < 1e-6
	while not crowd[0].done:
		_graph(s, t, t + 10, 9.8, 48, 48)
		t = s.step(t, t + 10, *[q.d for q in crowd])
	sc = Scenario(name, rec, "batch 49, largest graph 48: 99 eager steps")
	sc.how("graph_miss", r"batch 49 has no graph, the largest is of 48: 99 steps .* 1185 launches of %s us each; "
	       r"GPU busy 29\.4 %%" % (r"about 27\.0" if launches else r"at most 28\.7"), steps=99, gpu_busy_pct=29.4,
	       graph__launches_per_step=1185, graph__launch_us=27.0 if launches else 34000 / 1185)
	sc.only("graph_miss", "prefill", "step_wait")
	for q in crowd:
		sc.blame(q, "prefill", request_of(z), 20)
		sc.blame(q, "graph_miss", None, 2376)
		sc.excess[q.id] = 2396
	sc.blame(z, "graph_miss", None, 2376)
	sc.excess[z.id] = 2376
	sc.expect("why:q0", r"GPU\s+busy\s+29\.4\s+%")
	sc.expect("blame", r"49")
	sc.never("blame", r"(?i)neighbour")
	return sc


def _padded():
	rec = Recording()
	s = Server(rec)
	crowd = _crowd(s, 32, 230)
	t = s.step(0, 30, *[q.p(64) for q in crowd])
	s.gpu_step(0, 30, 29, launches=1185, batch=32, graph="none")
	for _ in range(100):
		_graph(s, t, t + 8.4, 8.2, 32, 32)
		t = s.step(t, t + 8.4, *[q.d for q in crowd])
	z = s.request("Z", t - 0.5, 64, 101)
	s.gpu_step(t, t + 28.4, 28, launches=1185, batch=33, graph="none")
	t = s.step(t, t + 28.4, *[q.d for q in crowd] + [z.p(64)])
	while not z.done:
		_graph(s, t, t + 10, 9.8, 33, 48)
		t = s.step(t, t + 10, *[q.d for q in crowd] + [z.d])
	while not crowd[0].done:
		_graph(s, t, t + 8.4, 8.2, 32, 32)
		t = s.step(t, t + 8.4, *[q.d for q in crowd])
	sc = Scenario("s03_padded", rec, "33 requests padded to 48: 10.0 instead of 8.4")
	for q in crowd:
		sc.blame(q, "padding", None, 160)
		sc.blame(q, "prefill", request_of(z), 20)
		sc.excess[q.id] = 180
	sc.blame(z, "padding", None, 160)
	sc.excess[z.id] = 160
	sc.only("padding", "prefill", "step_wait")
	sc.expect("blame", r"lost 1\.60 ms")
	return sc


def scenarios():
	return [_miss(), _miss("s03_launches", launches=True), _padded()]
