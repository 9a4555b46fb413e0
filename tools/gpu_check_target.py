# SPDX-License-Identifier: Apache-2.0
"""For tools/gpu-check: the process that is looked at, and what a recording of tokenlag says of it."""
import json
import os
import re
import signal
import statistics
import subprocess
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
BUILD = os.path.abspath(os.environ.get("B", os.path.join(ROOT, "build")))
EDGE_NS, WINDOW_GAP_NS = 50000000, 500000000


class Missing(Exception):
	"""This machine lacks what is needed; the message is a sentence."""


def last_line(text):
	return (text.strip().splitlines() or ["it said nothing"])[-1]


# ---- what is looked at ----
class Target:
	"""A process that decodes. steps(): what it did, by itself; known(): kernels of which it knows when they ran."""

	def __init__(self, r, eager=False, env=()):
		self.r, self.load, self.eager = r, None, eager
		self.journal = os.path.join(r.work, "journal")
		self.said = open(os.path.join(r.work, "said"), "w+")
		if os.path.exists(self.journal):
			os.unlink(self.journal)
		self.process = subprocess.Popen(self.command(eager), stdout=self.said, stderr=subprocess.STDOUT, cwd=ROOT,
			env=dict(os.environ, **dict(env)))
		self.pid = self.process.pid
		r.targets.append(self)
		ready = self.wait_ready(300)
		self.begin(ready)
		until = time.monotonic() + 30
		while len(self.steps()) < 20 and time.monotonic() < until:
			time.sleep(0.1)
		if len(self.steps()) < 20:
			raise Missing("the decode loop makes no steps: " + self.tail())

	def wait_ready(self, seconds):
		until = time.monotonic() + seconds
		while time.monotonic() < until and self.process.poll() is None:
			with open(self.said.name) as f:
				for line in f:
					if line.startswith("ready "):
						return line
			time.sleep(0.05)
		raise Missing("the decode loop did not start: " + self.tail())

	def tail(self):
		with open(self.said.name) as f:
			return last_line(f.read())

	def lives(self):
		return self.process.poll() is None

	def state(self):
		"""Threads, descriptors, and how often our library is mapped."""
		with open(f"/proc/{self.pid}/maps") as f:
			copies = sum("libtokenlag" in line and "r-xp" in line for line in f)
		return len(os.listdir(f"/proc/{self.pid}/task")), len(os.listdir(f"/proc/{self.pid}/fd")), copies

	def end(self, how=signal.SIGTERM):
		for p in (self.load, self.process):
			if p and p.poll() is None:
				p.send_signal(how)
		for p in (self.load, self.process):
			try:
				if p:
					p.wait(20)
			except subprocess.TimeoutExpired:
				p.kill()
				p.wait()
		self.said.close()
		if self in self.r.targets:
			self.r.targets.remove(self)

	def rows(self):
		with open(self.journal) as f:
			for line in f:
				if line.endswith("\n"):
					yield json.loads(line)


class TorchLoop(Target):
	def command(self, eager):
		return [self.r.o.python, "tools/gpu-check-loop", "--journal", self.journal] + (["--eager"] if eager else [])

	def begin(self, ready):
		pass

	def steps(self):
		steps, fresh = [], True
		for row in self.rows():
			if "step" in row:
				steps.append({"n": row["step"], "t0": row["t0_ns"], "t1": row["t1_ns"], "graphs": row["graphs"], "kernels": None,
					"fresh": fresh})
			fresh = "known" in row
		return steps

	def known(self):
		return [row for row in self.rows() if "known" in row]


class Simserve(Target):
	def command(self, eager):
		return [os.path.join(BUILD, "simserve"), "--port", "0", "--truth", self.journal, "--graphs", "off" if eager else "on"]

	def begin(self, ready):
		port = re.search(r"port=(\d+)", ready)[1]
		self.load = subprocess.Popen(["tools/load", "--url", "http://127.0.0.1:" + port, "--requests", "100000", "--concurrency", "8",
			"--ignore-eos", "--mix", "1:prompt=20,out=200"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)

	def steps(self):
		steps = []
		for row in self.rows():
			if "step" in row:
				decodes = all(m[1] == "d" for m in row["members"])
				steps.append({"n": row["step"], "t0": row["t0_ns"], "t1": row["t1_ns"], "graphs": int(row["graph"] in ("hit", "padded")),
					"kernels": row["kernels"], "fresh": not decodes})
		return steps

	def known(self):
		return []


def share(n, of):
	return f"{n} of {of}" + (f" ({100 * n / of:.2f} %)" if of else "")


def tpot(steps, begin, end):
	"""From one step's end to the next one's, ms: the median, and the longest."""
	gaps = [(b["t1"] - a["t1"]) / 1e6 for a, b in zip(steps, steps[1:])
		if b["n"] == a["n"] + 1 and not b["fresh"] and begin <= a["t1"] and b["t1"] <= end]
	return (statistics.median(gaps), max(gaps)) if len(gaps) > 10 else (None, None)


# ---- what tokenlag says of it ----
class Recording:
	def __init__(self, path, tokenlag, said):
		self.said, self.launches, self.spans, self.names, self.health = said, [], [], {}, []
		self.begin = self.end = None
		p = subprocess.run([tokenlag, "events", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
		for line in p.stdout.splitlines():
			e = json.loads(line)
			kind = e["kind"]
			if kind == "recording":
				self.begin = e["mono_ns"]
			elif kind == "capture_end":
				self.end = e["ts_ns"]
			elif kind == "gpu_launch":
				self.launches.append(e)
			elif kind == "gpu_span" and e["what"] != "overhead":
				self.spans.append(e)
			elif kind == "gpu_name":
				self.names[e["id"]] = e["name"]
			elif kind == "gpu_health":
				self.health.append(e)
		self.spans.sort(key=lambda e: e["ts_ns"])
		self.launches.sort(key=lambda e: e["ts_ns"])
		self.windows = []	# when CUPTI told launches: [from, to], with a pause between two
		for e in self.launches:
			if not e["corr"]:	# told by a probe
				continue
			if not self.windows or e["ts_ns"] - self.windows[-1][1] > WINDOW_GAP_NS:
				self.windows.append([e["ts_ns"], e["ts_ns"]])
			self.windows[-1][1] = e["ts_ns"]

	def number(self, pattern):
		m = re.search(pattern, self.said)
		return float(m[1]) if m else None

	def refused(self):
		m = re.search(r"no GPU records: (.*)", self.said)
		return m and m[1]

	def inside(self, t0, t1):
		"""Well within a window, where nothing is cut off."""
		return any(a + EDGE_NS <= t0 and t1 <= b - EDGE_NS for a, b in self.windows)

	def total(self, key):
		return sum(e.get(key, 0) for e in self.health)

	def governed(self):
		"""What the governor gave up, and why."""
		return re.findall(r"GPU: (\w+ -> \w+: .*)", self.said)


def report_steps(tokenlag, path, begin):
	"""When the steps that `tokenlag report` makes of launches were launched."""
	p = subprocess.run([tokenlag, "report", "--json", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
	steps = json.loads(p.stdout)["steps"] if p.returncode == 0 else []
	return [begin + int(s["t_launch_ms"] * 1e6) for s in steps if s.get("t_launch_ms") is not None]
