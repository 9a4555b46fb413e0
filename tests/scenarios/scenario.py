# SPDX-License-Identifier: Apache-2.0
"""Recordings written by hand, and what must be said of them.

A scenario says what a server, its threads, sockets and devices did, in ms since its own begin; out
come the JSON lines that `tokenlag import` reads. What must be found is written beside it, from the
same numbers: nothing here is taken from what tokenlag prints.

Each event has a moment at which the pipeline would emit it, which is its place in the recording: a
step at its end, a chunk when its write was begun, a span of a thread when it is over. How much later
than that it may come (LATENESS_MS), and with which others it keeps its order (its sources), is said
here, too: shuffled() makes use of it.
"""
import json

BASE_MS = 10000		# CLOCK_MONOTONIC when a scenario begins: 0 stands for "not known"

# What the pipeline allows. Wire events of a process leave the ring buffer in order, at once. Messages of
# vLLM's engine are held until other sockets must have shown theirs. Spans of threads come with the poll
# behind their end; what is looked at in intervals, sampled or collected in buffers comes with the next round.
LATENESS_MS = {"wire": 2, "engine": 150, "thread": 200, "net": 200, "code": 1000, "throttle": 1000,
	       "gpu": 2000, "else": 1000}


def ns(ms):
	return round((BASE_MS + ms) * 1e6)


def span_ns(ms):
	return round(ms * 1e6)


class Event:
	def __init__(self, emitted_ns, order, family, sources, fields):
		self.emitted_ns, self.order, self.family, self.sources = emitted_ns, order, family, sources
		self.fields = fields


class Recording:
	def __init__(self):
		self.events = []
		self.requests = []	# of all servers, in order of their numbers
		self.t1 = 0		# ms: of the last event

	def add(self, family, at, kind, /, ts=None, sources=(), **fields):
		"""An event that is emitted at `at` ms; its ts is that, too, unless it says another."""
		row = {"kind": kind, "ts_ns": ns(at if ts is None else ts)}
		row.update((k, v) for k, v in fields.items() if v is not None)
		self.t1 = max(self.t1, at)
		e = Event(ns(at), len(self.events), family, sources or (family,), row)
		self.events.append(e)
		return e

	def in_order(self):
		return sorted(self.events, key=lambda e: (e.emitted_ns, e.order))

	def text(self, events=None):
		"""The recording as JSON lines, with its end."""
		last = {"kind": "capture_end", "ts_ns": ns(self.t1 + 1), "why": "done"}
		rows = [e.fields for e in (self.in_order() if events is None else events)] + [last]
		return "".join(json.dumps(r, separators=(",", ":")) + "\n" for r in rows)


def shuffled(rec, rng):
	"""Its events, each as late as it may be: those of one source keep their order."""
	last, order = {}, []
	for e in rec.in_order():
		at = e.emitted_ns + rng.randrange(span_ns(LATENESS_MS[e.family]) + 1)
		if e.fields["kind"] in ("engine", "host", "thread"):
			at = e.emitted_ns
		at = max([at] + [last.get(s, 0) for s in e.sources])
		last.update((s, at) for s in e.sources)
		order.append((at, e.emitted_ns, e.order, e))
	return [e for _, _, _, e in sorted(order, key=lambda x: x[:3])]


KEPT_WHEN_DROPPING = ("engine", "host", "thread", "lost")


def dropped(rec, rng, share=0.05, n_bursts=5):
	"""Its events without about `share` of them, lost in bursts that the kernel told of. With how many."""
	rows = rec.in_order()
	first = sum(1 for e in rows if e.fields["kind"] in KEPT_WHEN_DROPPING and e.emitted_ns <= ns(0))
	n_lost = round(len(rows) * share)
	size = max(1, n_lost // n_bursts)
	bursts = sorted(rng.randrange(first, max(first + 1, len(rows) - size)) for _ in range(n_bursts))
	gone = {i for b in bursts for i in range(b, min(b + size, len(rows)))
		if rows[i].fields["kind"] not in KEPT_WHEN_DROPPING}
	out, n = [], 0
	for i, e in enumerate(rows):
		if i in gone:
			n += 1
			continue
		out.append(e)
	told = []
	for run in _runs(sorted(gone)):
		since = rows[run[0] - 1].emitted_ns if run[0] else rows[0].emitted_ns
		until = rows[run[-1]].emitted_ns
		told.append(Event(until, len(rows), "else", ("lost",), {
			"kind": "lost", "ts_ns": until, "since_ns": since, "n": len(run), "where": "ring"}))
	out = sorted(out + told, key=lambda e: (e.emitted_ns, e.order))
	return out, n, [(e.fields["since_ns"], e.fields["ts_ns"]) for e in told]


def _runs(numbers):
	"""Consecutive numbers together."""
	runs = []
	for i in numbers:
		if runs and runs[-1][-1] == i - 1:
			runs[-1].append(i)
		else:
			runs.append([i])
	return runs


NOT_SAID_WITHOUT_WIRE = ("seq_link", "seq_point", "step_stats", "seq_preempt")


def without_engine_wire(rec):
	"""Its events as if steps were seen in the engine's code only: nobody tells of submit, queue, task."""
	return [e for e in rec.in_order() if e.fields["kind"] not in NOT_SAID_WITHOUT_WIRE]


# ---- a server ----

class Request:
	def __init__(self, server, name, number, slot, prompt, out):
		self.server, self.name, self.number, self.slot = server, name, number, slot
		self.prompt, self.out = prompt, out
		self.id = "r%d" % number
		self.pos = 0		# tokens computed
		self.tokens = 0		# given by the engine
		self.written = []	# ms: writes of its chunks
		self.outputs = []	# ms: ends of the steps that gave them
		self.read = self.submit = None
		self.first_step = None
		self.done = False

	def p(self, n, out=None, again=False, pos=None, guess=False):
		"""It computes n tokens of its prompt in a step."""
		if out is None:
			out = 0 if not again and self.pos + n < self.prompt else 1
		flags = (["AGAIN"] if again else []) + (["GUESS"] if guess else [])
		return Member(self, "prefill", n, out, flags, pos)

	@property
	def d(self):
		"""It decodes one token in a step."""
		return Member(self, "decode", 1, 1, [], None)

	def spec(self, computed, accepted):
		"""It verifies drafts: so many tokens computed, so many of them good."""
		return Member(self, "decode", computed, accepted, [], None)

	@property
	def gaps(self):
		return [b - a for a, b in zip(self.written, self.written[1:])]


class Member:
	def __init__(self, request, phase, n, out, flags, pos):
		self.request, self.phase, self.n, self.out = request, phase, n, out
		self.flags, self.pos = flags, pos


class Server:
	"""vLLM: a front end and an engine process. llama.cpp: one process with two threads."""

	def __init__(self, rec, kind="vllm", api=100, core=200, port=8000, delivery=0.2, threads=True,
		     max_step_tokens=None, max_seqs=None, name="", cgroup=40):
		self.rec, self.kind, self.port, self.delivery = rec, kind, port, delivery
		self.api = api
		self.core = core if kind == "vllm" else api
		self.loop_tid = self.core
		self.front_tid = self.api if kind == "vllm" else self.api + 1
		self.slots = 0
		self.running, self.waiting, self.kv_ppm = 0, 0, 200000
		self.cgroup, self.cgroup_path = cgroup, "/engines.slice/llm%s.service" % name
		if kind == "vllm":
			self._engine(self.api, "api", "see pid %d" % core, None, None)
			self._engine(self.core, "engine-core", "wire (ZMQ)", max_step_tokens, max_seqs)
		else:
			self._engine(self.api, "server", "uprobe llama_process", max_step_tokens, max_seqs)
		if threads:
			self.thread("engine", self.core, self.loop_tid, "VLLM::EngineCor"
				    if kind == "vllm" else "llama-server")
			self.thread("front", self.api, self.front_tid, "vllm" if kind == "vllm" else "http")

	def _engine(self, pid, role, source, max_step_tokens, max_seqs):
		self.rec.add("engine", 0, "engine", ts=-1000, tgid=pid, start_ns=1,
			     engine="vllm" if self.kind == "vllm" else "llama.cpp", tiers=["T0", "T1"],
			     n_ports=int(role != "engine-core"), ports=[self.port] if role != "engine-core" else [],
			     version="0.32.0" if self.kind == "vllm" else "b11549", role=role, step_source=source,
			     server=self.api, max_step_tokens=max_step_tokens, max_seqs=max_seqs)

	def thread(self, role, pid, tid, name, rank=-1, at=0):
		self.rec.add("thread", at, "thread", ts=-999, tgid=pid, tid=tid, role=role, rank=rank,
			     server=self.api, cgroup=self.cgroup, name=name, cgroup_path=self.cgroup_path)

	def request(self, name, read, prompt, out, read_done=None, submit=None, status=200, stream=True):
		"""Its first byte comes at `read`; it is read whole at `read_done`, handed over at `submit`."""
		number = len(self.rec.requests) + 1
		q = Request(self, name, number, self.slots, prompt, out)
		self.rec.requests.append(q)
		q.wire = "wire%d" % number
		self.slots += 1
		read_done = read + 0.05 if read_done is None else read_done
		submit = read_done + 0.25 if submit is None else submit
		q.read, q.read_done, q.submit, q.stream = read, read_done, submit, stream
		q.refused = status >= 400
		wire = dict(tgid=self.api, tid=self.front_tid, sources=(q.wire,))
		self.rec.add("wire", read_done, "conn", ts=read - 0.1, conn=number, what="open", family="inet",
			     local_port=self.port, peer_port=40000 + number, **wire)
		self.rec.add("wire", read_done, "req_begin", ts=read, req=number, conn=number,
			     conn_open_ns=ns(read - 0.1), flags=2, **wire)
		self.rec.add("wire", read_done, "req_facts", req=number, max_tokens=-1, body_bytes=4 * prompt,
			     api="completions", stream=int(stream), method="POST", path="/v1/completions",
			     model="m", **wire)
		if q.refused:
			return q
		if self.kind == "vllm":
			self.rec.add("engine", submit, "seq_begin", tgid=self.core, slot=q.slot, kept=-1,
				     sources=("steps%d" % self.core,))
		else:
			self.rec.add("wire", submit, "seq_link", tgid=self.api, tid=self.front_tid, req=number,
				     slot=-1, task=number, method="task", sources=(q.wire,))
		self.waiting += 1
		return q

	def refuse(self, q, at, status=400):
		"""The request gets no answer but an error."""
		wire = dict(tgid=self.api, tid=self.front_tid, sources=(q.wire,))
		self.rec.add("wire", at, "resp_begin", req=q.number, status=status, body="json", **wire)
		self.rec.add("wire", at, "req_end", req=q.number, how="complete", status=status, **wire)
		q.done = True

	def _begin_on_slot(self, q, t0):
		q.first_step = t0
		self.waiting -= 1
		self.running += 1
		if self.kind == "vllm":
			self.rec.add("engine", t0, "seq_point", tgid=self.core, slot=q.slot, point="scheduled",
				     sources=("steps%d" % self.core,))
			return
		both = (q.wire, "steps%d" % self.core)
		self.rec.add("engine", t0, "seq_link", tgid=self.core, tid=self.loop_tid, req=q.number,
			     slot=q.slot, task=q.number, method="task", sources=both)
		self.rec.add("engine", t0, "seq_begin", tgid=self.core, tid=self.loop_tid, slot=q.slot, kept=0,
			     sources=("steps%d" % self.core,))

	def step(self, t0, t1, *members, write=None, flags=None):
		"""The engine computes from t0 to t1. write(request, t1): when a token's write begins."""
		rows, steps = [], ("steps%d" % self.core,)
		for m in members:
			q = m.request
			if q.first_step is None:
				self._begin_on_slot(q, t0)
			pos = q.pos if m.pos is None else m.pos
			rows.append({"slot": q.slot, "n_tokens": m.n, "pos": pos, "phase": m.phase,
				     "n_out": m.out, "flags": m.flags})
			if not m.flags:
				q.pos += m.out if m.phase == "decode" else m.n
		self.rec.add("engine", t1, "step", ts=t0, tgid=self.core, tid=self.loop_tid, end_ns=ns(t1),
			     n_tokens=sum(m.n for m in members), members=rows, flags=flags, sources=steps)
		if self.kind == "vllm":
			self.rec.add("engine", t1, "step_stats", tgid=self.core, flags=["QUEUES", "KV"],
				     running=self.running, waiting=self.waiting, kv_ppm=self.kv_ppm, sources=steps)
		for m in members:
			if m.out:
				self._output(m.request, t1, m.out, write)
		return t1

	def _output(self, q, t1, n, write):
		q.tokens += n
		q.outputs.append(t1)
		at = write(q, t1) if write else t1 + self.delivery
		over = q.out is not None and q.tokens >= q.out
		if over:
			self.rec.add("engine", t1, "seq_end", tgid=self.core, tid=self.loop_tid, slot=q.slot,
				     sources=("steps%d" % self.core,))
			self.running -= 1
			q.done = True
		if at is not None:
			self.chunk(q, at, n if n > 1 else None)
			if over:
				self.finish(q, at)

	def chunk(self, q, at, n_tokens=None, flags=("TEXT",), bytes_=250):
		wire = dict(tgid=self.api, tid=self.front_tid, sources=(q.wire,))
		if not q.stream:
			return
		if not q.written:
			self.rec.add("wire", at, "resp_begin", req=q.number, status=200, body="sse", **wire)
		self.rec.add("wire", at, "chunk", req=q.number, bytes=bytes_, n_tokens=n_tokens, write_us=10,
			     flags=list(flags), **wire)
		if not q.written and self.kind == "vllm" and q.first_step is not None:
			self.rec.add("engine", at, "seq_link", tgid=self.core, req=q.number, slot=q.slot, task=-1,
				     method="id", sources=(q.wire, "steps%d" % self.core))
		q.written.append(at)

	def finish(self, q, at):
		"""Its answer is whole: counts, [DONE], the end."""
		wire = dict(tgid=self.api, tid=self.front_tid, sources=(q.wire,))
		if q.stream:
			self.rec.add("wire", at + 0.02, "chunk", req=q.number, bytes=60, flags=["FINISH", "USAGE"],
				     write_us=10, **wire)
		else:
			self.rec.add("wire", at, "resp_begin", req=q.number, status=200, body="json", **wire)
		self.rec.add("wire", at + 0.02, "usage", req=q.number, flags=["PROMPT", "CACHED", "OUTPUT"],
			     prompt=q.prompt, cached=0, output=q.tokens, slot=-1, finish="length", **wire)
		if q.stream:
			self.rec.add("wire", at + 0.03, "chunk", req=q.number, bytes=6, flags=["DONE"], **wire)
		self.rec.add("wire", at + 0.03, "req_end", req=q.number, how="complete", status=200,
			     bytes_in=4 * q.prompt, bytes_out=300 * len(q.written), **wire)
		self.rec.add("wire", at + 0.5, "conn", conn=q.number, what="close", family="inet",
			     local_port=self.port, peer_port=40000 + q.number, **wire)

	def decode(self, t, until, period, *requests, write=None):
		"""Steps of `period` in which those of the requests decode that are not done. The end."""
		while t + period <= until + 1e-6:
			alive = [q for q in requests if not q.done]
			if not alive:
				break
			t = self.step(t, t + period, *[q.d for q in alive], write=write)
		return t

	# ---- evidence ----

	def span(self, tid, since, until, state, pid=None, **fields):
		fields["since_ns"] = ns(since)
		self.rec.add("thread", until, "thread_span", tgid=pid or self._pid_of(tid), tid=tid, state=state,
			     sources=("thread%d" % tid,), **fields)

	def code(self, tid, since, until, code, frame, req=None, pid=None):
		n = max(1, round((until - since) / 10))
		self.rec.add("code", until, "code", tgid=pid or self._pid_of(tid), tid=tid, since_ns=ns(since),
			     code=code, n_samples=n, of_samples=n, frame=frame, req=req and req.number)

	def _pid_of(self, tid):
		return self.core if tid == self.loop_tid else self.api

	def gpu_step(self, t0, t1, busy, rank=0, pid=None, **fields):
		for k in ("collective", "transfer", "copy", "late"):
			if k in fields:
				fields[k + "_ns"] = span_ns(fields.pop(k))
		self.rec.add("gpu", t1, "gpu_step", ts=t0, tgid=pid or self.core, end_ns=ns(t1),
			     busy_ns=span_ns(busy), rank=rank, device=rank, **fields)

	def launches(self, t0, ms, kernels, graphs, done):
		"""What probes count of a step: its kernels together, each graph, and the wait for results."""
		def add(at, call, n, dur, **fields):
			self.rec.add("gpu", at, "gpu_launch", tgid=self.core, tid=self.loop_tid, call=call, n=n,
				     dur_ns=span_ns(dur), stream=1, **fields)
		add(t0, "kernel", kernels, ms, what=7, flags=["MANY"])
		for _ in range(graphs):
			add(t0 + ms + 0.001, "graph", 1, 0.002, what=9)
		add(t0 + ms + 0.01, "sync", 1, done - t0 - ms - 0.01)

	def gpu_state(self, since, until, clock, max_clock=1965, why=(), by=0, name="", pct=0, device=0):
		self.rec.add("gpu", until, "gpu_state", since_ns=ns(since), device=device, clock_mhz=clock,
			     max_mhz=max_clock, why=list(why), by_tgid=by, by_pct=pct, by_name=name)

	def delivered(self, q, at, n_chunks, by, name="", n_bytes=0):
		self.rec.add("net", at, "delivered", req=q.number, n_chunks=n_chunks, n_bytes=n_bytes, by=by,
			     name=name, sources=("net%d" % q.number,))


# ---- what must be said ----

class Who:
	"""A culprit: one of these types, and one of these words in what is printed of it."""

	def __init__(self, types, *words):
		self.types, self.words = (types,) if isinstance(types, str) else tuple(types), words

	def fits(self, culprit):
		if not isinstance(culprit, dict) or culprit.get("type") not in self.types:
			return False
		said = "%s %s" % (culprit.get("id"), culprit.get("name"))
		return not self.words or any(w in said for w in self.words)

	def __str__(self):
		return "%s %s" % ("/".join(self.types), "/".join(self.words))


def request_of(q):
	return _Request(q)


class _Request(Who):
	def __init__(self, q):
		super().__init__("request", q.id)
		self.id = q.id

	def fits(self, culprit):
		return isinstance(culprit, dict) and culprit.get("type") == "request" and \
			str(culprit.get("id")) == self.id


class Scenario:
	def __init__(self, name, rec, what):
		self.name, self.rec, self.what = name, rec, what
		self.blames = []	# (victim, mechanism, who, lo, hi, root, prov)
		self.excess = {}	# victim id -> ms
		self.ttfts = []		# (victim, total, {mechanism: (who, ms)})
		self.opens = []		# (victim, token, ms, {mechanism: (who, ms)})
		self.gap_checks = []	# (victim, {name: value})
		self.says = []		# (command, pattern, wanted)
		self.clean = False	# nothing may be blamed
		self.allowed = []	# (mechanism, who): true, but not the point
		self.client_side = set()
		self.totals = []	# (mechanism, ms, within)
		self.cleared = None	# mechanisms, all others have no time
		self.gap_parts = []	# (victim, length, {mechanism: ms})
		self.hows = []		# (mechanism, pattern, {key: number})
		self.json = []		# (what, function of the report, of blame)
		self.hard = True	# shuffled and with losses, too ...
		self.no_wire = True	# ... and without the engine's wire
		self.claims = {}	# (request id, metric) -> (verdict, {key: number} of the claim)
		self.no_blame_in = None	# (since, until), ms

	@property
	def rec_requests(self):
		return self.rec.requests

	@staticmethod
	def first_ms(answer):
		"""The report's times count from the first event; these from the scenario's begin."""
		return BASE_MS - answer.report["t0_ns"] / 1e6

	def blame(self, victim, mechanism, who, ms, root=None, prov=None, upto=None):
		"""Over all of its gaps so many ms (from ms to upto, if that is given) are charged so."""
		self.blames.append((victim, mechanism, who, ms, ms if upto is None else upto, root, prov))
		return self

	def ttft(self, victim, total, parts, side="wire"):
		self.ttfts.append((victim, total, parts))
		return self

	def open(self, victim, token, ms, parts):
		"""When the recording ends it has waited so long for this token (0: its first one), because of these."""
		self.opens.append((victim, token, ms, parts))
		return self

	def gaps(self, victim, **numbers):
		self.gap_checks.append((victim, numbers))
		return self

	def allow(self, mechanism, who=None):
		self.allowed.append((mechanism, who))
		return self

	def expect(self, command, pattern):
		self.says.append((command, pattern, True))
		return self

	def never(self, command, pattern):
		self.says.append((command, pattern, False))
		return self

	def total(self, mechanism, ms, within=None):
		"""In all gaps of the recording so much is charged so."""
		self.totals.append((mechanism, ms, within))
		return self

	def only(self, *mechanisms):
		"""No other mechanism has any time worth naming: engine, devices, sockets ... are cleared."""
		self.cleared = mechanisms
		return self

	def parts(self, victim, ms, **mechanisms):
		"""Each of its gaps of this length consists of these."""
		self.gap_parts.append((victim, ms, mechanisms))
		return self

	def how(self, mechanism, pattern, **numbers):
		"""What is said of how a mechanism took its time; rank__wait_ms=44: rank.wait_ms."""
		self.hows.append((mechanism, pattern, numbers))
		return self

	def check(self, what, fn):
		"""fn(report, blame) -> None if it is right, else what is wrong."""
		self.json.append((what, fn))
		return self
