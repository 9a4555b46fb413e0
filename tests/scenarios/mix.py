# SPDX-License-Identifier: Apache-2.0
"""A long recording of four streams in which one disturbance after the other happens, and its truth."""
from scenario import Recording, Server, Who, ns, request_of, span_ns

STEP, QUIET = 20.0, 10	# ms, steps without a disturbance before each
N_STREAMS, RANKS = 4, 2
NOBODY = None


class Truth:
	"""What was done between t0 and t1: these mechanisms, each by one of these, took about ms."""

	def __init__(self, kind, t0, mechanisms, ms, victims):
		self.kind, self.t0, self.t1 = kind, t0, None
		self.mechanisms = mechanisms	# {mechanism: Who or None}; the first one is what was done
		self.ms, self.victims = ms, victims


class Mix:
	def __init__(self, rng, kind="vllm", noise=0.015):
		self.rng, self.noise = rng, noise
		self.rec = Recording()
		self.s = s = Server(self.rec, kind, max_step_tokens=8192)
		self.other, self.detok = 271, 111
		s.thread("other", s.core, self.other, "sampler-pool")
		s.thread("detokenizer", s.api, self.detok, "detokenizer")
		for rank in range(RANKS):
			s.thread("launch", 300 + rank, 300 + rank, "VLLM::Worker_TP", rank=rank)
		self.t, self.n, self.clock = 0.0, 0, 1965
		self.write = None	# (request, t1) -> ms, while outputs are held
		self.proxied, self.arrivals, self.hold_proxy = set(), {}, None
		self.streams = [self._stream() for _ in range(N_STREAMS)]
		self._step(STEP, [q.p(8) for q in self.streams])
		self.truths = []
		self.state_since = 0.0

	# ---- the quiet course of things ----

	def _stream(self, at=None):
		self.n += 1
		q = self.s.request("v%d" % self.n, self.t - 1 if at is None else at, 8, None)
		if self.n % N_STREAMS == 2:
			self.proxied.add(q)
		self.arrivals[q] = []
		return q

	def _step(self, ms, members, gpu=None, busy=None):
		t0, t1 = self.t, self.t + ms
		normal = dict(graph="hit", launches=9, graph_launches=1, batch=len(members),
			      padded_to=len(members), collective=2, transfer=2)
		for rank in range(RANKS):
			mine = dict(normal, **((gpu or {}).get(rank, (gpu or {}).get("all", {}))))
			self.s.gpu_step(t0, t1, busy or ms - 1, rank=rank, pid=300 + rank, **mine)
		before = {q: len(q.written) for q in self.proxied}
		self.s.step(t0, t1, *members, write=self.write)
		for q in self.proxied:
			if len(q.written) > before[q]:
				at = q.written[-1] + 0.3
				if self.hold_proxy and self.hold_proxy[0] <= at < self.hold_proxy[1]:
					at = self.hold_proxy[1]
				self.arrivals[q].append(at)
				self.s.delivered(q, at, len(q.written), "proxy", name="nginx")
		self.t = t1
		return t1

	def _usual(self):
		"""It varies a little, and grows with what the streams have computed."""
		context = sum(q.pos for q in self.streams)
		return STEP * (1 + self.rng.gauss(0, self.noise)) + 0.0002 * context

	def decode(self, n=1, more=0.0, gpu=None, without=(), stretch=1.0):
		"""Steps of all streams, longer by `more`, or by a factor. How much longer in all."""
		excess = 0.0
		for _ in range(n):
			members = [q.d for q in self.streams if q not in without]
			usual = self._usual()
			self._step(usual * stretch + more, members, gpu, busy=usual * stretch - 1)
			excess += usual * (stretch - 1) + more
		return excess

	def quiet(self):
		"""Between disturbances; now and then one stream ends and another begins."""
		self.decode(QUIET // 2)
		if self.rng.random() < 0.1:
			k = self.rng.randrange(N_STREAMS)
			old = self.streams[k]
			old.out = old.tokens + 1
			self.decode()
			self.streams[k] = self._stream(self.t - 2)
			if (k == 1) != (self.streams[k] in self.proxied):
				(self.proxied.add if k == 1 else self.proxied.discard)(self.streams[k])
			q = self.streams[k]
			self._step(self._usual(), [x.p(8) if x is q else x.d for x in self.streams])
		self._noise()
		self.decode(QUIET - QUIET // 2)

	def _noise(self):
		"""What is always there and hurts nobody."""
		t, r, s = self.t, self.rng, self.s
		s.span(s.loop_tid, t + 3, t + 3 + r.uniform(0.05, 0.3), "runnable", cpu=2, from_cpu=2,
		       by_tgid=11, by_tid=11, by_ns=50000, by_name="kworker")
		s.span(s.front_tid, t + 4, t + 4 + r.uniform(5, 12), "sleep", wait="poll", cpu=1, from_cpu=1)
		if r.random() < 0.3:
			s.code(s.loop_tid, t + 5, t + 5.4, "gc", "gc_collect_main")
		if r.random() < 0.3:
			s.span(self.other, t, t + 15, "run", pid=s.core, cpu=6, from_cpu=6)
		if r.random() < 0.3:	# others wait, and nobody for them
			s.span(self.other, t, t + 60, "runnable", pid=s.core, cpu=6, from_cpu=6, by_tgid=5001,
			       by_tid=5001, by_ns=60000000, by_name="ffmpeg")
			self.rec.add("throttle", t + 100, "throttle", since_ns=ns(t), cgroup=s.cgroup + 1,
				     throttled_ns=80000000, n_throttled=1, n_periods=1, quota_us=1000,
				     period_us=100000, path="/batch.slice")
		if r.random() < 0.3:	# busy between two outputs, and in time for the next
			s.span(s.front_tid, t + 2, t + 9, "run", cpu=1, from_cpu=1)
			s.code(s.front_tid, t + 2, t + 9, "json", "json.py:dumps")
		if r.random() < 0.3:	# there, but idle
			self._look(by=4242, name="embedder", pct=0)

	def _look(self, why=(), by=0, name="", pct=0, clock=1965):
		"""A look at the devices: what was true since the last one."""
		if self.t > self.state_since:
			for device in range(RANKS):
				self.s.gpu_state(self.state_since, self.t, clock, why=why, by=by, name=name, pct=pct,
						 device=device)
		self.state_since = self.t

	def done(self, kind, t0, mechanisms, ms, victims=None):
		truth = Truth(kind, t0, mechanisms, ms, list(victims or self.streams))
		self.truths.append(truth)
		return truth

	# ---- disturbances: each returns its truth ----

	def prefill(self):
		t0 = self.t
		self.n += 1
		n = self.rng.randrange(1000, 4000)
		c = self.s.request("c%d" % self.n, t0 - 2, n, 1)
		self._step(self._usual() + 0.04 * n, [q.d for q in self.streams] + [c.p(n)],
			   {"all": {"graph": "none"}})
		return self.done("prefill", t0, {"prefill": request_of(c)}, 0.04 * n)

	def preemption(self):
		r, s = self.rng, self.s
		t0 = self.t
		q, taker = r.sample(self.streams, 2)
		lost = q.pos
		self.decode(r.randrange(8, 20), without=(q,))
		again = self._usual() + 0.04 * max(lost, 2000)
		parked = self.t - t0
		self.rec.add("engine", self.t + again, "seq_preempt", ts=t0, tgid=s.core, slot=q.slot,
			     lost_tokens=lost, resumed_ns=ns(self.t), for_slot=taker.slot + 1,
			     sources=("steps%d" % s.core,))
		self._step(again, [x.p(max(lost, 2000), again=True, pos=0, out=1) if x is q else x.d
				   for x in self.streams], {"all": {"graph": "none"}})
		self.done("recompute", t0, {"recompute": request_of(q)}, 0.04 * max(lost, 2000),
			  [x for x in self.streams if x is not q])
		return self.done("preemption", t0, {"preempted": request_of(taker), "recompute": None},
				 parked + again, [q])

	def _stall(self, evidence, lo=60, hi=300):
		"""A step that takes so much longer because its thread was kept from working."""
		t0, ms = self.t, self.rng.uniform(lo, hi)
		evidence(t0 + 2, t0 + 2 + ms)
		self.decode(more=ms)
		return t0, ms

	def gc(self):
		s = self.s

		def evidence(a, b):
			s.span(s.loop_tid, a, b, "run", cpu=2, from_cpu=2)
			s.code(s.loop_tid, a, b, "gc", "gc_collect_main")
		t0, ms = self._stall(evidence)
		return self.done("gc", t0, {"gc": Who("thread")}, ms)

	def gil(self):
		s = self.s

		def evidence(a, b):
			s.span(s.loop_tid, a, b, "sleep", wait="futex", cpu=2, from_cpu=2, by_tgid=s.core,
			       by_tid=self.other, by_ns=span_ns(b - a), by_name="sampler-pool")
			s.span(self.other, a, b, "run", pid=s.core, cpu=6, from_cpu=6)
			s.code(self.other, a, b, self.rng.choice(("regex", "json", "other")), "mod.py:work",
			       pid=s.core)
		t0, ms = self._stall(evidence)
		return self.done("gil", t0, {"gil": Who("thread", "sampler", "271", "mod.py")}, ms)

	def throttled(self):
		s = self.s

		def evidence(a, b):
			s.span(s.loop_tid, a, b, "runnable", flags=["IDLE_CPU"], cpu=2, from_cpu=2)
			self.rec.add("throttle", b + 8, "throttle", since_ns=ns(a - 30), cgroup=s.cgroup,
				     throttled_ns=span_ns(b - a), n_throttled=1, n_periods=1, quota_us=400000,
				     period_us=100000, by_tgid=s.core, by_threads=30, by_ns=span_ns(9 * (b - a)),
				     by_name="xgrammar-comp", path=s.cgroup_path)
		t0, ms = self._stall(evidence)
		return self.done("throttled", t0,
				 {"throttled": Who(("cgroup", "process", "thread"), "xgrammar", "llm")}, ms)

	def run_queue(self):
		s = self.s
		name = self.rng.choice(("ffmpeg", "cc1plus", "backup", "rsync"))
		pid = self.rng.randrange(5000, 6000)

		def evidence(a, b):
			s.span(s.loop_tid, a, b, "runnable", cpu=2, from_cpu=2, by_tgid=pid, by_tid=pid,
			       by_ns=span_ns(b - a), by_cgroup=99, by_name=name)
		t0, ms = self._stall(evidence)
		return self.done("run_queue", t0, {"run_queue": Who(("process", "cgroup"), name)}, ms)

	def page_fault(self):
		s = self.s

		def evidence(a, b):
			s.span(s.loop_tid, a, b, "sleep", wait="disk", cpu=2, from_cpu=2,
			       major_faults=self.rng.randrange(20, 400))
		t0, ms = self._stall(evidence)
		return self.done("page_fault", t0, {"page_fault": NOBODY}, ms)

	def compile(self):
		s = self.s
		t0, ms = self.t, self.rng.uniform(200, 900)
		s.span(s.loop_tid, t0 + 2, t0 + 2 + ms, "run", cpu=2, from_cpu=2)
		s.code(s.loop_tid, t0 + 2, t0 + 2 + ms, "compile", "triton/compiler.py:compile")
		self.decode(more=ms, gpu={"all": {"flags": ["COLD"], "graph": "none", "launches": 40}})
		return self.done("compile", t0, {"compile": NOBODY}, ms)

	def unexplained(self):
		t0, ms = self._stall(lambda a, b: None)
		return self.done("unexplained", t0, {"unexplained": NOBODY}, ms)

	def graph_miss(self):
		t0, n = self.t, self.rng.randrange(3, 12)
		more = self.rng.uniform(12, 40)
		self.decode(n, more=more, gpu={"all": {"graph": "miss", "launches": 1185, "graph_launches": 0,
						       "padded_to": 0}})
		return self.done("graph_miss", t0, {"graph_miss": NOBODY}, n * more)

	def straggler(self):
		t0, n = self.t, self.rng.randrange(1, 6)
		late, more = self.rng.randrange(RANKS), self.rng.uniform(15, 60)
		gpu = {k: dict(late=more, collective=2) if k == late else dict(collective=2 + more)
		       for k in range(RANKS)}
		self.decode(n, more=more, gpu=gpu)
		return self.done("straggler", t0, {"collective_wait": Who("rank", str(late))}, n * more)

	def neighbour(self):
		self._look()
		t0, n = self.t, self.rng.randrange(6, 15)
		by = self.rng.uniform(1.5, 2.2)
		ms = self.decode(n, stretch=by)
		self._look(["NEIGHBOUR"], by=4242, name="embedder", pct=50)
		return self.done("neighbour", t0, {"gpu_neighbour": Who("process", "embedder", "4242")}, ms)

	def clocked(self):
		self._look()
		t0, n = self.t, self.rng.randrange(6, 15)
		mhz = self.rng.randrange(900, 1500)
		by = 1 + (1965 / mhz - 1) * self.rng.uniform(0.6, 1.0)
		ms = self.decode(n, stretch=by)
		self._look(["POWER"], clock=mhz)
		return self.done("clock", t0, {"gpu_clock": NOBODY}, ms)

	# behind the engine

	def _held_outputs(self, until):
		self.write = lambda q, t1: until + 0.001 * q.number if t1 <= until else t1 + self.s.delivery
		while self.t < until:
			self.decode()
		self.write = None
		self.decode()

	def event_loop(self):
		s, t0 = self.s, self.t
		until = t0 + self.rng.uniform(80, 400)
		self.n += 1
		begin = t0 + 1
		d = s.request("d%d" % self.n, begin, 200000, None, read_done=begin + 0.1, status=400)
		code = self.rng.choice(("tokenizer", "regex", "json", "template"))
		s.span(s.front_tid, begin, until, "run", cpu=1, from_cpu=1)
		s.code(s.front_tid, begin, until, code, "%s.py:run" % code, req=d)
		s.refuse(d, until)
		self._held_outputs(until)
		return self.done("event_loop", t0, {"event_loop": request_of(d)}, until - t0 - STEP)

	def metrics(self):
		s, t0 = self.s, self.t
		until = t0 + self.rng.uniform(50, 150)
		begin = t0 + 1
		number = len(self.rec.requests) + 1
		scrape = s.request("scrape", begin, 1, None, read_done=begin + 0.1, status=400)
		for e in self.rec.events[-3:]:	# it is none of an LLM
			if e.fields["kind"] == "req_begin":
				e.fields["flags"] = 0
			elif e.fields["kind"] == "req_facts":
				e.fields.update(api="other", method="GET", path="/metrics", stream=0)
		assert scrape.number == number
		s.span(s.front_tid, begin, until, "run", cpu=1, from_cpu=1)
		s.code(s.front_tid, begin, until, "metrics", "prometheus_client:generate_latest", req=scrape)
		s.refuse(scrape, until, 200)
		self._held_outputs(until)
		return self.done("metrics", t0, {"metrics_scrape": NOBODY}, until - t0 - STEP)

	def detokenizer(self):
		s, t0 = self.s, self.t
		until = t0 + self.rng.uniform(80, 300)
		s.span(self.detok, t0 + 1, until, "run", pid=s.api, cpu=7, from_cpu=7)
		s.code(self.detok, t0 + 1, until, "detokenizer", "detokenizer.py:decode", pid=s.api)
		self._held_outputs(until)
		return self.done("detokenizer", t0, {"detokenizer": NOBODY}, until - t0 - STEP)

	def _direct(self):
		return self.rng.choice([q for q in self.streams if q not in self.proxied])

	def nagle(self):
		q, t0 = self._direct(), self.t
		hold = self.rng.uniform(36, 200)
		self.decode()
		since = q.written[-1]
		until = since + hold
		n = 1
		while self.t + self.s.delivery < until - STEP:
			self.decode()
			n += 1
		self.rec.add("net", until, "send_held", since_ns=ns(since), ack_ns=ns(until), n_writes=n,
			     bytes=250 * n, conn=q.number, req=q.number, fd=31, local_port=self.s.port,
			     peer_port=40000 + q.number, why="nagle", tgid=self.s.api, sources=("held",))
		self.decode(2)
		return self.done("nagle", t0, {"nagle": NOBODY}, hold, [q])

	def slow_client(self):
		q, t0 = self._direct(), self.t
		until = t0 + self.rng.uniform(100, 500)
		self.write = lambda x, t1: until + 0.1 if x is q and t1 <= until else t1 + self.s.delivery
		while self.t < until:
			self.decode()
		self.write = None
		self.rec.add("net", until, "send_blocked", tgid=self.s.api, since_ns=ns(t0 + STEP + 0.2),
			     drained_ns=ns(until + 30), conn=q.number, req=q.number, app_queue_bytes=5000,
			     kernel_bytes=32768, sources=("net%d" % q.number,))
		self.decode(2)
		return self.done("slow_client", t0, {"slow_client": Who(("client", "network", "process"))},
				 until - t0 - STEP, [q])

	def proxy_buffer(self):
		q = next(q for q in self.streams if q in self.proxied)
		t0 = self.t
		until = t0 + self.rng.uniform(150, 600)
		self.hold_proxy = (t0 + 1, until)
		while self.t < until:
			self.decode()
		self.hold_proxy = None
		self.decode(2)
		return self.done("proxy_buffer", t0,
				 {"proxy_buffer": Who(("process", "client", "network"), "nginx")},
				 until - t0 - STEP, [q])

	# two at once

	def queue_and_prefill(self):
		"""Somebody has the engine's CPU while a step computes a prompt, too."""
		t0, ms = self.t, self.rng.uniform(60, 200)
		self.n += 1
		n = self.rng.randrange(1000, 4000)
		c = self.s.request("c%d" % self.n, t0 - 2, n, 1)
		self.s.span(self.s.loop_tid, t0 + 2, t0 + 2 + ms, "runnable", cpu=2, from_cpu=2, by_tgid=6001,
			    by_tid=6001, by_ns=span_ns(ms), by_cgroup=99, by_name="zstd")
		self._step(self._usual() + ms + 0.04 * n, [q.d for q in self.streams] + [c.p(n)],
			   {"all": {"graph": "none"}}, busy=STEP + 0.04 * n)
		self.done("prefill", t0, {"prefill": request_of(c)}, 0.04 * n)
		self.done("run_queue", t0, {"run_queue": Who(("process", "cgroup"), "zstd")}, ms)

	def gc_and_event_loop(self):
		"""The engine collects garbage while the front end tokenizes, and for longer."""
		s, t0 = self.s, self.t
		ms = self.rng.uniform(60, 120)
		until = t0 + STEP + ms + self.rng.uniform(60, 200)
		self.n += 1
		d = s.request("d%d" % self.n, t0 + 1, 200000, None, read_done=t0 + 1.1, status=400)
		s.span(s.front_tid, t0 + 1, until, "run", cpu=1, from_cpu=1)
		s.code(s.front_tid, t0 + 1, until, "tokenizer", "tokenizers.abi3.so", req=d)
		s.refuse(d, until)
		s.span(s.loop_tid, t0 + 2, t0 + 2 + ms, "run", cpu=2, from_cpu=2)
		s.code(s.loop_tid, t0 + 2, t0 + 2 + ms, "gc", "gc_collect_main")
		self.write = lambda q, t1: until + 0.001 * q.number if t1 <= until else t1 + s.delivery
		self.decode(more=ms)
		made = self.t
		while self.t < until:
			self.decode()
		self.write = None
		self.decode()
		self.done("gc", t0, {"gc": Who("thread")}, ms)
		self.done("event_loop", t0, {"event_loop": request_of(d)}, until - made)

	def quota_of_both(self):
		"""A quota stops engine and front end alike."""
		s, t0, ms = self.s, self.t, self.rng.uniform(60, 200)
		until = t0 + 2 + ms
		for tid in (s.loop_tid, s.front_tid):
			s.span(tid, t0 + 2, until, "runnable", flags=["IDLE_CPU"], cpu=2, from_cpu=2)
		self.rec.add("throttle", until + 8, "throttle", since_ns=ns(t0 - 30), cgroup=s.cgroup,
			     throttled_ns=span_ns(2 * ms), n_throttled=1, n_periods=1, quota_us=400000,
			     period_us=100000, by_tgid=s.core, by_threads=30, by_ns=span_ns(9 * ms),
			     by_name="xgrammar-comp", path=s.cgroup_path)
		self.decode(more=ms)
		return self.done("throttled", t0,
				 {"throttled": Who(("cgroup", "process", "thread"), "xgrammar", "llm")}, ms)

	KINDS = ("prefill", "preemption", "gc", "gil", "throttled", "run_queue", "page_fault", "compile",
		 "unexplained", "graph_miss", "straggler", "neighbour", "clocked", "event_loop", "metrics",
		 "detokenizer", "nagle", "slow_client", "proxy_buffer", "queue_and_prefill",
		 "gc_and_event_loop", "quota_of_both")

	def run(self, n):
		"""n disturbances, each kind about as often, in random order; quiet stretches between them."""
		order = [self.KINDS[i % len(self.KINDS)] for i in range(n)]
		self.rng.shuffle(order)
		self.decode(60)
		quiets = []
		for kind in order:
			t0 = self.t
			self.quiet()
			quiets.append((t0, self.t))
			getattr(self, kind)()
			for truth in self.truths:
				truth.t1 = truth.t1 or self.t
			self.decode(2)
		for q in self.streams:
			q.out = q.tokens + 1
		self.decode()
		self._look()
		self._calm_server()
		return self.truths, quiets

	def _calm_server(self):
		"""Another server on the host, with a stream of its own, to which nothing happens."""
		s = Server(self.rec, "llama", api=500, port=8081, name="b", cgroup=41)
		self.calm = s.request("calm", -0.7, 8, None)
		t = s.step(0, 15, self.calm.p(8))
		while t < self.t - 30:
			t = s.step(t, t + 15 * (1 + self.rng.gauss(0, 0.01)), self.calm.d)
		self.calm.out = self.calm.tokens + 1
		s.step(t, t + 15, self.calm.d)

	def times(self, q):
		"""When each of its tokens reached the last place that is seen."""
		return self.arrivals[q] if q in self.proxied else q.written
