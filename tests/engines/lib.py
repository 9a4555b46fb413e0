# SPDX-License-Identifier: Apache-2.0
"""What the scripts of this folder share: TAP, real engines, load, captures, and that all of it ends.

Everything that is started here is stopped by its pid when the script ends, however it ends. With
TL_KEEP=1 the folder of logs and recordings stays.
"""
import atexit
import ctypes
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOKENLAG = os.path.abspath(os.environ.get("TOKENLAG", os.path.join(ROOT, "build", "tokenlag")))
CACHE = os.environ.get("TOKENLAG_CACHE", "/var/cache/tokenlag")
MODEL = os.path.join(CACHE, "models", "tiny.gguf")
GENERATIONS = ("current", "decode", "shared")

_libc = ctypes.CDLL(None)
_started = []
scratch = tempfile.mkdtemp(prefix="tokenlag-test.")


# Limits of seconds here are for what hangs: on a busy machine all takes many times as long as on a quiet one.

# ---- life cycle ----

def _clean_up():
	for p in reversed(_started):
		stop(p)
	if os.environ.get("TL_KEEP"):
		say("kept: " + scratch)
	else:
		shutil.rmtree(scratch, ignore_errors=True)


def _die_with_parent():
	_libc.prctl(1, signal.SIGTERM)


def start(argv, **kw):
	"""A child that is stopped when the script ends, also when the script is killed."""
	p = subprocess.Popen([str(a) for a in argv], preexec_fn=_die_with_parent, **kw)
	_started.append(p)
	return p


def stop(p, sig=signal.SIGTERM, seconds=60):
	"""Ends a child; its exit status, or None if it had to be killed."""
	if p.poll() is None:
		p.send_signal(sig)
	try:
		return p.wait(seconds)
	except subprocess.TimeoutExpired:
		p.kill()
		p.wait()
		return None


def wait_until(what, seconds=60, pause=0.01):
	"""The first true value of what(), or None when the time is over."""
	until = time.monotonic() + seconds
	while time.monotonic() < until:
		value = what()
		if value:
			return value
		time.sleep(pause)
	return None


# ---- TAP ----

_results = []


def check(name, ok, why=""):
	"""One result; `why` is shown if it is bad."""
	_results.append(bool(ok))
	print("%s %d - %s" % ("ok" if ok else "not ok", len(_results), name), flush=True)
	if not ok:
		for line in str(why).splitlines()[:40]:
			print("# " + line[:400])
	return ok


def say(text):
	for line in str(text).splitlines():
		print("# " + line, flush=True)


def run_main(main):
	"""Runs a script's main(), ends with its plan; an exception is a failed test."""
	signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
	if os.geteuid():
		print("1..0 # SKIP needs root, to attach to processes")
		return
	if not os.access(TOKENLAG, os.X_OK):
		print("Bail out! no '%s': run make, or set TOKENLAG" % TOKENLAG)
		sys.exit(1)
	subprocess.run([os.path.join(ROOT, "tools", "engines-env")], check=True, stdout=subprocess.DEVNULL)
	try:
		main()
	except Exception as e:		# noqa: the rest of the script did not run
		import traceback
		check("no exception: %s" % e, False, traceback.format_exc())
	print("1..%d" % len(_results))
	sys.exit(not all(_results))


# ---- tokenlag ----

class Ran:
	"""What a finished command left."""

	def __init__(self, rc, out, err):
		self.rc, self.out, self.err = rc, out, err

	def __str__(self):
		return "exit %s\nstdout: %s\nstderr: %s" % (self.rc, self.out[-2000:], self.err[-2000:])


def tokenlag(*argv, before=(), seconds=120, binary=None, **kw):
	"""Runs it to its end; rc is None if it hung."""
	argv = [*before, binary or TOKENLAG, *map(str, argv)]
	try:
		p = subprocess.run(argv, capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL, **kw)
	except subprocess.TimeoutExpired as e:
		return Ran(None, str(e.stdout or ""), str(e.stderr or ""))
	return Ran(p.returncode, p.stdout, p.stderr)


def one_sentence(text):
	"""Is this one message, of one line, in words, without noise of the inside?"""
	lines = [line for line in text.splitlines() if line]
	return len(lines) == 1 and len(lines[0]) > 20 and lines[0].startswith("tokenlag") and not re.search(
		r"libbpf|assert|Aborted|core dumped|Error [0-9]|errno", lines[0])


class Capture:
	"""A `tokenlag record` that runs."""

	def __init__(self, *argv, pid=None, out=None, before=(), json_too=False, wait=True):
		self.path = out or os.path.join(scratch, "capture-%d.tlag" % len(_started))
		base = os.path.join(scratch, "capture-%d" % len(_started))
		self.out_path, self.err_path = base + ".out", base + ".err"
		cmd = [*before, TOKENLAG, "record", "-o", self.path, *argv]
		cmd += ["-p", str(pid)] if pid else []
		cmd += ["--json"] if json_too else []
		with open(self.out_path, "w") as o, open(self.err_path, "w") as e:
			self.p = start(cmd, stdout=o, stderr=e, stdin=subprocess.DEVNULL)
		self.attached_ns = None
		if wait:
			self.wait_attached()

	@property
	def err(self):
		with open(self.err_path, errors="replace") as f:
			return f.read()

	@property
	def out(self):
		with open(self.out_path, errors="replace") as f:
			return f.read()

	def wait_attached(self, seconds=120):
		"""Sets attached_ns: from then on everything is seen. An exception if it ended before."""
		ok = wait_until(lambda: ": recording " in self.err or self.p.poll() is not None, seconds, 0.002)
		self.attached_ns = time.monotonic_ns()
		if not ok or self.p.poll() is not None:
			raise RuntimeError("record did not attach: exit %s, stderr: %s" % (self.p.poll(), self.err))

	def stop(self, sig=signal.SIGINT, seconds=60):
		"""Its exit status; None if it did not end by itself."""
		return stop(self.p, sig, seconds)


def report(path, *argv):
	"""The report of a recording, parsed; and the run itself."""
	r = tokenlag("report", "--json", *argv, path)
	return (json.loads(r.out) if r.rc == 0 and r.out else None), r


def without_self(text):
	"""Live and replay differ in nothing but what the capture itself cost."""
	return re.sub(r'\s*"self":\s*\{[^{}]*\},?', "", text, count=1)


def bpf_ids():
	"""Ids of all programs and links in the kernel."""
	ids = set()
	for kind in ("prog", "link"):
		p = subprocess.run(["bpftool", "-j", kind, "show"], capture_output=True, text=True,
			env=dict(os.environ, PATH=os.environ.get("PATH", "") + ":/usr/sbin:/sbin"))
		ids |= {(kind, o["id"]) for o in json.loads(p.stdout or "[]")}
	return ids


# ---- servers and load ----

class Server:
	"""A process that serves HTTP on a port of 127.0.0.1."""

	def __init__(self, argv, log=None):
		self.log = log
		self.p = start(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
		line = self.p.stdout.readline()
		words = dict(w.split("=", 1) for w in line.split() if "=" in w)
		if not line.startswith("ready"):
			raise RuntimeError("%s did not start: %r" % (argv[0], line))
		self.pid, self.port = int(words["pid"]), int(words["port"])
		self.url = "http://127.0.0.1:%d" % self.port

	def alive(self):
		return self.p.poll() is None

	def post(self, path, body, seconds=120):
		"""Status and body of one exchange; status None if the connection broke."""
		c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
		try:
			c.request("POST", path, body if isinstance(body, bytes) else json.dumps(body),
				{"Content-Type": "application/json"})
			r = c.getresponse()
			return r.status, r.read()
		except (OSError, http.client.HTTPException) as e:
			return None, str(e).encode()
		finally:
			c.close()

	def answers(self, n=5):
		"""Does it still answer as it should: 200 and the number of tokens asked for?"""
		status, raw = self.post("/v1/chat/completions", {"model": "tiny", "max_tokens": n,
			"messages": [{"role": "user", "content": "ba be bi bo"}]})
		try:
			return status == 200 and json.loads(raw)["usage"]["completion_tokens"] == n
		except (ValueError, KeyError):
			return False

	def stop(self, sig=signal.SIGTERM):
		return stop(self.p, sig)


def engine(generation="current", *argv, port=0, root=None):
	"""A real llama.cpp server, of tools/engine."""
	log = os.path.join(scratch, "engine-%s-%d.log" % (generation, len(_started)))
	before = ["env", "TOKENLAG_CACHE=" + root] if root else []
	return Server([*before, os.path.join(ROOT, "tools", "engine"), "--port", port, "--generation", generation,
		"--model", MODEL, "--threads", 1, "--log", log, *argv], log)


def start_load(url, *argv):
	"""tools/load in the background; finish_load() gives what it saw."""
	out = os.path.join(scratch, "load-%d.json" % len(_started))
	p = start([os.path.join(ROOT, "tools", "load"), "--url", url, "--out", out, *argv],
		stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
	p.out_path = out
	return p


def finish_load(p, seconds=300):
	_, err = p.communicate(timeout=seconds)
	if not os.path.exists(p.out_path):	# it ends with 1, too, where requests failed that were to
		raise RuntimeError("load ended with %s: %s" % (p.returncode, err))
	with open(p.out_path) as f:
		return json.load(f)


def load(url, *argv):
	return finish_load(start_load(url, *argv))


atexit.register(_clean_up)
