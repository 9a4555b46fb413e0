# SPDX-License-Identifier: Apache-2.0
"""One disturbance at a time, made on a real engine: what a run of each is, and who is to blame.

A run is: record, three streams that decode, the disturbance in the middle (or none: the control),
`tokenlag blame --json`. Expected is the mechanism that comes first among those that are nobody's own,
and its culprit. What is expected is known from what was done, never from tokenlag.
"""
import atexit
import ctypes
import http.client
import json
import os
import signal
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "engines"))
import lib	# noqa: E402

N_DECODERS, OUT = 3, 110
SETTLE_S = 1.3			# the decoders are past their prompts, and steps have been learnt from


class PlainStreams:
	"""Streams as a client reads them that takes gzip, as browsers and many libraries do: no tokens are told apart, only
	reads. In the place of tools/load's process; its result has the times of the reads."""

	def __init__(self, url, n, out):
		self.port, self.pid, self.requests = int(url.rsplit(":", 1)[1]), os.getpid(), []
		self.threads = [threading.Thread(target=self.one, args=(i, out), daemon=True) for i in range(n)]
		for t in self.threads:
			t.start()

	def one(self, i, out):
		body = json.dumps({"model": "tiny", "max_tokens": out, "stream": True, "ignore_eos": True,
			"messages": [{"role": "user", "content": words(16, i)}]}).encode()
		with socket.create_connection(("127.0.0.1", self.port)) as s:
			s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\nConnection: close\r\n"
				b"X-Request-Id: plain-%d\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (i, len(body)) + body)
			reads = []
			while s.recv(65536):
				reads.append((time.monotonic_ns(), "read"))
		self.requests.append({"chunks": reads, "t_first_token_ns": reads[0][0], "t_last_token_ns": reads[-1][0]})

	def poll(self):
		return None if any(t.is_alive() for t in self.threads) else 0

	def finish(self):
		for t in self.threads:
			t.join()
		return {"requests": self.requests}


class Run:
	"""One run and what it was to show."""

	def __init__(self, server, culprits=None):
		self.server, self.blame, self.report, self.load = server, None, None, None
		self.culprits = culprits or {}

	def request_named(self, prefix):
		"""Ids (r17) of the requests whose X-Request-Id begins so."""
		return {r["id"] for r in self.report["requests"] if (r.get("x_request_id") or "").startswith(prefix)}

	def mechanisms(self):
		"""[(ms, share of all gap time in %, name)] of what is nobody's own, the most first."""
		rows = self.blame["blame"]["by_mechanism"]
		return sorted(((m["ms"], m["share_pct"], m["mechanism"]) for m in rows
			if not m["mechanism"].startswith("own_")), reverse=True)

	def culprits_of(self, mechanism):
		"""[(ms, type, id)] of this mechanism over all victims, the most first."""
		sums = {}
		for p in self.blame["blame"]["pairs"]:
			if p["mechanism"] == mechanism:
				key = ((p["culprit"] or {}).get("type"), str((p["culprit"] or {}).get("id")))
				sums[key] = sums.get(key, 0) + p["ms"]
		return sorted(((ms, *key) for key, ms in sums.items()), reverse=True)

	def told(self):
		return "; ".join("%s %.0f ms %.1f %% %s" % (name, ms, share, self.culprits_of(name)[:2])
			for ms, share, name in self.mechanisms()[:4])


class Provocation:
	"""name; mechanisms that name it; culprit(run, type, id): is it the right one?; disturb(run), called in the middle;
	before(run, provoked), called first; prepare(run, capture) -> url to load, called before the streams begin;
	decoders(server, url) -> what loads it; control: the same, of the control run."""

	def __init__(self, name, mechanisms, culprit, disturb=None, prepare=None, before=None, decoders=None, control=None):
		self.name, self.mechanisms, self.culprit = name, mechanisms, culprit
		self.disturb, self.prepare, self.before = disturb, prepare, before
		self.decoders = decoders or streams
		self.control = control or self.decoders


def streams(server, url=None, n=N_DECODERS, out=OUT, prompt="16"):
	return lib.start_load(url or server.url, "--requests", n, "--concurrency", n, "--x-request-id", "--ignore-eos",
		"--mix", "1:prompt=%s,out=%d,name=decoder" % (prompt, out))


def run(server, p, provoked):
	"""Runs it once, with the disturbance or without; a Run."""
	r = Run(server)
	if p.before:
		p.before(r, provoked)
	cap = lib.Capture(pid=server.pid)
	try:
		url = p.prepare(r, cap) if provoked and p.prepare else None
		r.load_process = load = (p.decoders if provoked else p.control)(server, url)
		time.sleep(SETTLE_S)
		if provoked and p.disturb:
			p.disturb(r)
		r.load = load.finish() if isinstance(load, PlainStreams) else lib.finish_load(load)
		time.sleep(0.3)
	finally:
		status = cap.stop()
	if not server.alive():
		with open(server.log or os.devnull, errors="replace") as f:
			raise RuntimeError("the server ended with %s: %s" % (server.p.poll(), f.read()[-2000:]))
	if status != 0:
		raise RuntimeError("record ended with %s: %s" % (status, cap.err))
	ran = lib.tokenlag("blame", "--json", cap.path)
	if ran.rc != 0:
		raise RuntimeError("blame: %s" % ran)
	r.blame, r.path = json.loads(ran.out), cap.path
	r.report, _ = lib.report(cap.path, "--no-steps")
	return r


def judge(r, p):
	"""(right?, why not): the first mechanism and its worst culprit are those of the provocation."""
	rows = r.mechanisms()
	if not rows or rows[0][2] not in p.mechanisms:
		return False, "expected %s, told %s" % (" or ".join(p.mechanisms), r.told() or "nothing")
	found = r.culprits_of(rows[0][2])
	if not found or not p.culprit(r, found[0][1], found[0][2]):
		return False, "wrong culprit: %s" % r.told()
	return True, r.told()


def quiet(r):
	"""(right?, why not): nothing but what is everybody's own has over 10 % of the time between tokens."""
	bad = [row for row in r.mechanisms() if row[1] > 10]
	return not bad, r.told()


def names_nothing(r):
	"""Of what has over 10 %, nothing is named: the machine itself may have been slower, without evidence."""
	return all(row[2] == "unexplained" for row in r.mechanisms() if row[1] > 10)


def others_pct(r):
	"""How much of the time between tokens other work took, in %: of this machine, or of the clients, which are
	threads of this process; not what was started to disturb."""
	known = set(family(r.server.pid)) | set(family(os.getpid())) - {os.getpid()} | {r.culprits.get("hog")}
	total = sum(m["ms"] / m["share_pct"] * 100 for m in r.blame["blame"]["by_mechanism"] if m["mechanism"] == "own_decode")
	return 100 * sum(ms for ms, kind, ident in r.culprits_of("run_queue") if kind == "process" and int(ident) not in known) / total


# ---- several runs ----

MAX_OTHERS_PCT, MAX_TRIES = 3, 3
table = []			# of strings


def run_judged(server, p, provoked, i):
	"""A run and whether it is right. One that other work disturbed, and that is not right, is done again; so is a
	control, once, on a machine that has more to do than it has CPUs, or if all it has too much of is unexplained."""
	for attempt in range(MAX_TRIES):
		busy = not provoked and attempt == 0 and os.getloadavg()[0] > os.cpu_count()
		r = run(server, p, provoked)
		ok, why = judge(r, p) if provoked else quiet(r)
		others = others_pct(r)
		lib.say("%s %s %d: %s: %s" % (p.name, "provoked" if provoked else "control", i + 1, "ok" if ok else "WRONG", why))
		unnamed = not provoked and attempt == 0 and names_nothing(r)
		if ok or attempt == MAX_TRIES - 1 or (others <= MAX_OTHERS_PCT and not busy and not unnamed):
			return ok, why, r, attempt
		lib.say("again: other work took %.0f %% of the time, load %.1f" % (others, os.getloadavg()[0]))


def run_many(server, p, runs, first=0):
	"""As many runs as controls, in turns; judged. ([control runs], [provoked runs]) if all were right."""
	good = {True: [], False: []}
	for i in range(runs):
		for provoked in (False, True):
			good[provoked].append(run_judged(server, p, provoked, first + i))
	for provoked, what in ((True, "named first, with its culprit"), (False, "control: nothing but own work over 10 %")):
		n = sum(ok for ok, *_ in good[provoked])
		lib.check("%s: %s in %d of %d runs" % (p.name, what, n, runs), n == runs,
			"\n".join(why for ok, why, *_ in good[provoked] if not ok))
	right, still = (sum(ok for ok, *_ in good[provoked]) for provoked in (True, False))
	again = sum(x[3] for provoked in good for x in good[provoked])
	shares = [next((row[1] for row in x[2].mechanisms() if row[2] in p.mechanisms), 0) for x in good[True]]
	worst = max([x[2].mechanisms()[0][1] for x in good[False] if x[2].mechanisms()] or [0])
	table.append("%-12s %-22s %2d of %-2d  %4.1f to %4.1f %%   %2d of %-2d  %4.1f %%   %d" % (p.name, p.mechanisms[0], right, runs,
		min(shares), max(shares), runs - still, runs, worst, again))
	return [x[2] for x in good[False]], [x[2] for x in good[True]]


def print_table():
	lib.say("")
	lib.say("%-12s %-22s %-8s %-17s %-8s %-8s %s" % ("provoked", "named first", "right", "its share", "alarms in", "most in", "done"))
	lib.say("%-12s %-22s %-8s %-17s %-8s %-8s %s" % ("", "", "", "", "controls", "a control", "again"))
	for line in table:
		lib.say(line)


# ---- against a load generator's own numbers ----

ENOUGH_RUNS = 5			# for medians that are worth a comparison


def decode_ms(load):
	"""What the client of the streams waited between first and last token, over all of them."""
	return sum(r["t_last_token_ns"] - r["t_first_token_ns"] for r in load["requests"]) / 1e6


def check_amount(controls, provoked):
	"""The blamed ms are what the load generator lost, within 10 %: medians of all runs. Judged only where runs that were
	alike differ by less than that."""
	def middle(xs):
		return sorted(xs)[len(xs) // 2]
	calm = sorted(decode_ms(r.load) for r in controls)
	spread = calm[3 * len(calm) // 4] - calm[len(calm) // 4]
	lost = middle([decode_ms(r.load) for r in provoked]) - middle(calm)
	blamed = middle([sum(p["ms"] for p in r.blame["blame"]["pairs"] if p["mechanism"] == "prefill" and
		p["victim"] not in r.request_named("culprit-")) for r in provoked])
	text = "long_prompt: the clients lost %.0f ms, blamed are %.0f ms (%+.1f %%)" % (lost, blamed, 100 * (blamed - lost) / (lost or 1))
	lib.say(text)
	if len(provoked) < ENOUGH_RUNS:
		return
	table.append(text + "; half of the controls are within %.0f ms" % spread)
	if spread > 0.1 * lost:
		lib.say("that is not judged: controls differ by %.0f ms among themselves" % spread)
	else:
		lib.check("long_prompt: blamed ms within 10 % of what the load generator lost", abs(blamed - lost) <= 0.1 * lost, text)


# ---- means of disturbing ----

def send(server, path, body, headers=None, seconds=60, port=None):
	"""One exchange to its end, in this thread; its status."""
	c = http.client.HTTPConnection("127.0.0.1", port or server.port, timeout=seconds)
	try:
		c.request("POST", path, json.dumps(body), dict({"Content-Type": "application/json"}, **(headers or {})))
		response = c.getresponse()
		response.read()
		return response.status
	except (OSError, http.client.HTTPException):
		return None
	finally:
		c.close()


def words(n, seed=0):
	"""n words, each a token of tools/tiny-model and of tools/tiny-hf-model, different for each seed."""
	consonants, vowels = "bcdfghjklmnpqrstvwyz", "aeiou"
	out, x = [], seed * 2654435761 + 12345
	for _ in range(n):
		x = (x * 6364136223846793005 + 1442695040888963407) & ((1 << 64) - 1)
		out.append(consonants[(x >> 33) % 20] + vowels[(x >> 45) % 5])
	return " ".join(out)


_seed = [int(time.time())]


def long_prompt(n, times=1, out=2):
	"""A disturbance: a prompt of n words that no cache has, `times` times one after the other."""
	def disturb(r):
		for _ in range(times):
			_seed[0] += 1
			send(r.server, "/v1/chat/completions", {"model": "tiny", "max_tokens": out, "stream": True,
				"messages": [{"role": "user", "content": words(n, _seed[0])}]}, {"X-Request-Id": "culprit-%d" % _seed[0]})
	return disturb


def is_request(prefix):
	return lambda r, kind, ident: kind == "request" and ident in r.request_named(prefix)


class Cgroup:
	"""A cgroup of the cpu controller, v1 or v2, that is removed at the end."""

	def __init__(self, name):
		v1 = "/sys/fs/cgroup/cpu"
		self.v2 = not os.path.isdir(v1)
		self.path = os.path.join("/sys/fs/cgroup" if self.v2 else v1, name + "-%d" % os.getpid())
		if self.v2:
			with open("/sys/fs/cgroup/cgroup.subtree_control", "w") as f:
				f.write("+cpu")
		os.makedirs(self.path, exist_ok=True)

	def write(self, name, text):
		with open(os.path.join(self.path, name), "w") as f:
			f.write(text)

	def add(self, pid):
		self.write("cgroup.procs", str(pid))

	def quota(self, quota_us, period_us=100000):
		if self.v2:
			self.write("cpu.max", "%s %d" % (quota_us or "max", period_us))
		else:
			self.write("cpu.cfs_period_us", str(period_us))
			self.write("cpu.cfs_quota_us", str(quota_us or -1))

	def weight(self):
		"""Seventy times what any other has."""
		if self.v2:
			self.write("cpu.weight", "7000")
		else:
			self.write("cpu.shares", "71680")

	def remove(self):
		root = os.path.dirname(self.path)
		if not os.path.isdir(self.path):
			return
		try:
			with open(os.path.join(self.path, "cgroup.procs")) as f:
				for pid in f.read().split():
					with open(os.path.join(root, "cgroup.procs"), "w") as g:
						g.write(pid)
			os.rmdir(self.path)
		except OSError as e:
			lib.say("cgroup %s stays: %s" % (self.path, e))


def pin(pid, cpus):
	"""All threads of a process to these CPUs."""
	for tid in os.listdir("/proc/%d/task" % pid):
		try:
			os.sched_setaffinity(int(tid), cpus)
		except OSError:
			pass		# it ended meanwhile


def family(pid):
	"""A process and all that it started."""
	found = [pid]
	for task in os.listdir("/proc/%d/task" % pid):
		with open("/proc/%d/task/%s/children" % (pid, task)) as f:
			for child in f.read().split():
				found += family(int(child))
	return found


def make_urgent(name, *pids):
	"""Puts processes into a cgroup that others hardly disturb, so that only we do; the cgroup. Their threads follow."""
	group = Cgroup(name)
	group.weight()
	for pid in pids:
		group.add(pid)
	atexit.register(group.remove)
	return group


def never_wait():
	"""This script itself before all others, so that it disturbs when it means to; not what it starts."""
	try:
		os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
	except OSError as e:
		lib.say("no real-time priority: %s" % e)


HOG = "import ctypes,sys\nctypes.CDLL(None).prctl(15, b'hogger', 0, 0, 0)\nwhile True: pass\n"


class Hog:
	"""A process named `hogger` that takes all of one CPU, in a cgroup of its own."""

	def __init__(self, cpu):
		self.p = lib.start([sys.executable, "-c", HOG])
		self.cgroup = make_urgent("tokenlag-hog", self.p.pid)
		os.sched_setaffinity(self.p.pid, {cpu})

	def stop(self):
		lib.stop(self.p, signal.SIGKILL)


def connections(pid, port, local):
	"""File descriptors of a process that are established TCP connections on (`local`) or to this port."""
	inodes = set()
	with open("/proc/%d/net/tcp" % pid) as f:
		for line in list(f)[1:]:
			w = line.split()
			if int(w[1 if local else 2].split(":")[1], 16) == port and w[3] == "01":
				inodes.add("socket:[%s]" % w[9])
	found = []
	for fd in os.listdir("/proc/%d/fd" % pid):
		try:
			if os.readlink("/proc/%d/fd/%s" % (pid, fd)) in inodes:
				found.append(int(fd))
		except OSError:
			pass		# closed meanwhile
	return found


def take_fd(pid, fd):
	"""A copy of another process's file descriptor: pidfd_open(2), pidfd_getfd(2)."""
	pidfd = os.pidfd_open(pid)
	try:
		got = ctypes.CDLL(None, use_errno=True).syscall(438, pidfd, fd, 0)
		if got < 0:
			raise OSError(ctypes.get_errno(), "pidfd_getfd")
		return got
	finally:
		os.close(pidfd)


def set_option(pid, port, local, option, value):
	"""Sets a TCP option on these connections of a process, from outside; how many."""
	n = 0
	try:
		fds = connections(pid, port, local)
	except OSError:
		return 0		# it has ended
	for fd in fds:
		try:
			copy = socket.socket(fileno=take_fd(pid, fd))
		except OSError:
			continue	# closed meanwhile, or the process has ended
		with copy:
			copy.setsockopt(socket.IPPROTO_TCP, option, value)
		n += 1
	return n


class SlowReader(threading.Thread):
	"""A client with little room that reads `rate` bytes a second of one long answer."""

	def __init__(self, server, body, rate, seconds):
		super().__init__(daemon=True)
		self.s = socket.socket()
		self.s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
		self.s.connect(("127.0.0.1", server.port))
		self.port = self.s.getsockname()[1]
		raw = json.dumps(body).encode()
		self.s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
			b"X-Request-Id: slow-reader\r\nContent-Length: %d\r\n\r\n" % len(raw) + raw)
		self.rate, self.until = rate, time.monotonic() + seconds

	def run(self):
		while time.monotonic() < self.until:
			try:
				if not self.s.recv(max(1, self.rate // 20)):
					break
			except OSError:
				break
			time.sleep(0.05)
		self.s.close()
