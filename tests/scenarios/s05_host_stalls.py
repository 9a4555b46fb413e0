# SPDX-License-Identifier: Apache-2.0
"""S5: one symptom, four causes on the host; and the same with none of their signs."""
from scenario import Recording, Scenario, Server, Who, ns


def _stalled_at(s, r, t, *begins):
	"""Steps of 20; those that begin at these moments take 200."""
	for begin in begins:
		t = s.decode(t, begin, 20, r)
		t = _gpu(s, r, t, 200)
	return t


def _gpu(s, r, t, ms):
	s.gpu_step(t, t + ms, 17, launches=9, graph_launches=1, batch=1, graph="hit", padded_to=1)
	return s.step(t, t + ms, r.d)


def _four():
	rec = Recording()
	s = Server(rec)
	loop, other = s.loop_tid, 271
	s.thread("other", s.core, other, "grammar-2")
	r = s.request("R", -0.7, 64, 260)
	t = s.step(0, 20, r.p(64))
	t = _stalled_at(s, r, t, 1000, 2000, 3000, 4000)
	# GC: on the CPU all the time, in the collector.
	s.span(loop, 1000, 1180, "run", cpu=2, from_cpu=2)
	s.code(loop, 1000, 1180, "gc", "gc_collect_main")
	# CFS: not allowed to run; 86 siblings had used up the quota in 20 ms.
	s.span(loop, 2000, 2180, "runnable", flags=["IDLE_CPU"], cpu=2, from_cpu=2)
	rec.add("throttle", 2200, "throttle", since_ns=ns(2000), cgroup=s.cgroup, throttled_ns=180000000,
		n_throttled=1, n_periods=1, quota_us=1720000, period_us=200000, by_tgid=s.core, by_threads=86,
		by_ns=1700000000, by_name="xgrammar-comp", path=s.cgroup_path)
	# Run queue: runnable, and another had the CPU.
	s.span(loop, 3000, 3180, "runnable", cpu=2, from_cpu=2, by_tgid=7777, by_tid=7777, by_ns=180000000,
	       by_cgroup=99, by_name="ffmpeg")
	# GIL: asleep on a futex; the thread that woke it had been on a CPU meanwhile, in `re`.
	s.span(loop, 4000, 4180, "sleep", wait="futex", cpu=2, from_cpu=2, by_tgid=s.core, by_tid=other,
	       by_ns=180000000, by_name="grammar-2")
	s.span(other, 4000, 4180, "run", pid=s.core, cpu=5, from_cpu=5)
	s.code(other, 4000, 4180, "regex", "re.py:match", pid=s.core)
	s.decode(t, 99999, 20, r)
	sc = Scenario("s05_four_causes", rec, "GC, CPU quota, run queue, GIL: a gap of 200 each")
	sc.blame(r, "gc", Who("thread"), 180)
	sc.blame(r, "throttled", Who(("cgroup", "process", "thread"), "xgrammar", "llm"), 180)
	sc.blame(r, "run_queue", Who(("process", "cgroup"), "ffmpeg", "7777"), 180)
	sc.blame(r, "gil", Who("thread", "grammar-2", str(other), "re.py"), 180)
	sc.excess[r.id] = 720
	sc.gaps(r, max=200, count={200: 4})
	for mechanism in ("gc", "throttled", "run_queue", "gil"):
		sc.total(mechanism, 180)
		sc.how(mechanism, r"1 step of 200 ms lost 180 ms to it; GPU busy 8\.5 %", steps=1, lost_ms=180, gpu_busy_pct=8.5)
	sc.only("gc", "throttled", "run_queue", "gil")
	sc.expect("blame", "ffmpeg")
	return sc


def _quota(name, busy):
	"""Period 100, run window 20, a step is CPU 3 and GPU 5: 8, 8, then 84 of which 76 are throttling.
	busy: others use the CPU meanwhile, so it is not idle; they are not why the thread does not run."""
	rec = Recording()
	s = Server(rec)
	r = s.request("R", -0.7, 1, 91)
	t = 0
	t = s.step(-8, 0, r.p(1))
	for period in range(0, 3000, 100):
		for k in range(2):
			_gpu8(s, r, t, 8)
			t += 8
		_gpu8(s, r, t, 84)
		t += 84
		others = dict(by_tgid=7777, by_tid=7777, by_ns=70000000, by_cgroup=99, by_name="ffmpeg")
		s.span(s.loop_tid, period + 24, period + 100, "runnable", cpu=1, from_cpu=1,
		       **(others if busy else dict(flags=["IDLE_CPU"])))
		rec.add("throttle", period + 100, "throttle", since_ns=ns(period), cgroup=s.cgroup,
			throttled_ns=80000000, n_throttled=1, n_periods=1, quota_us=600000, period_us=100000,
			by_tgid=s.core, by_threads=86, by_ns=560000000, by_name="xgrammar-comp",
			path=s.cgroup_path)
	sc = Scenario(name, rec, "a CPU quota of which other threads use the most")
	sc.blame(r, "throttled", Who(("cgroup", "process", "thread"), "xgrammar", "llm"), 30 * 76)
	sc.excess[r.id] = 30 * 76
	sc.gaps(r, n=90, mean=33.33, max=84, count={84: 30, 8: 60})
	sc.parts(r, 84, throttled=76)
	sc.how("throttled", "30 steps of 84.0 ms lost 76.0 ms each", steps=30, gpu_busy_all_pct=15.0)
	sc.check("125 tokens/s without it", lambda report, blame: _without(blame))
	sc.only("throttled")
	return sc


def _without(blame):
	for w in blame["what_if"]:
		if w["without"] == "throttled":
			return None if abs(w["tpot_p50_ms"] - 8) < 0.1 else "%r" % w
	return "no what_if"


def _gpu8(s, r, t, ms):
	s.gpu_step(t, t + ms, 5, launches=9, graph_launches=1, batch=1, graph="hit", padded_to=1)
	s.step(t, t + ms, r.d)


def _unknown():
	rec = Recording()
	s = Server(rec)
	r = s.request("R", -0.7, 64, 160)
	t = s.step(0, 20, r.p(64))
	# The threads are watched: had one of the four been there, it would have shown.
	s.span(s.front_tid, 100, 118, "sleep", wait="poll", cpu=1, from_cpu=1)
	s.span(s.loop_tid, 300, 301.5, "runnable", cpu=2, from_cpu=2, by_tgid=1, by_tid=1, by_ns=1500000,
	       by_name="systemd")
	t = _stalled_at(s, r, t, 1000)
	s.decode(t, 99999, 20, r)
	sc = Scenario("s05_unknown", rec, "the same gap with none of the signs")
	sc.blame(r, "unexplained", None, 180)
	sc.excess[r.id] = 180
	sc.check("what was ruled out", lambda report, blame: None
		 if {"run_queue", "throttled"} <= set(blame["blame"]["ruled_out"]) else
		 "ruled out: %r" % blame["blame"]["ruled_out"])
	sc.expect("blame", r"(?i)ruled out")
	return sc


END = 4000		# ms: when the recordings below end


def _begun(rec, kind="vllm"):
	"""Two streams of 200 tokens, one of which ends before 1500; then nothing any more."""
	s = Server(rec, kind=kind)
	a, b = s.request("A", -0.7, 64, 400), s.request("B", -0.7, 64, 40)
	t = s.step(0, 20, a.p(64), b.p(64))
	return s, a, b, s.decode(t, 1500, 20, a, b)


def _open(name, sign, what):
	"""The pager's case: it hangs while somebody records, and no gap ever ends."""
	rec = Recording()
	s, a, b, t = _begun(rec)
	c = s.request("C", t + 500, 64, 40)	# is read, and does not begin
	s.span(s.loop_tid, t, END, "sleep", wait=sign, flags=["TRUNC"], by_tgid=0)
	last = a.written[-1]
	sc = Scenario(name, rec, what)
	mechanism = "stopped" if sign == "stopped" else "unexplained"
	sc.open(a, a.tokens, END + 1 - last, {mechanism: (None, END + 1 - last - 20), "own_decode": (None, 20)})
	sc.open(c, 0, END + 1 - c.read, {mechanism: (None, END + 1 - c.submit)})
	sc.gaps(a, max=20, n=a.tokens - 1)
	sc.gaps(b, max=20, n=39)
	sc.expect("blame", r"2\s+requests\s+still\s+waited\s+for\s+their\s+next\s+token\s+when\s+the\s+recording\s+ended,\s+for\s+up\s+to\s+2\.50\s+s")
	sc.expect("why:A", r"it\s+had\s+waited\s+2\.50\s+s\s+for\s+its\s+next\s+token\s+when\s+the\s+recording\s+ended")
	sc.expect("why:C", r"it\s+had\s+waited\s+2\.00\s+s\s+for\s+its\s+first\s+token\s+when\s+the\s+recording\s+ended")
	return sc


def scenarios():
	return [_four(), _quota("s05_quota_pattern", False), _quota("s05_quota_busy", True), _unknown(),
		_open("s05_stopped_to_the_end", "stopped", "stopped, and still when the recording ends"),
		_open("s05_hangs_to_the_end", "socket", "nothing moves any more, and nobody knows why")]
