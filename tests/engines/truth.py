# SPDX-License-Identifier: Apache-2.0
"""What really happened, from two witnesses that know nothing of tokenlag: the server's log, which says
which task ran on which slot and when, and tools/load, which stamped what its client saw."""
import math
import re

SLACK_NS = 3000000	# between a log line and a step on the same slot: far less than a step takes

_LINE = re.compile(r"^(\d+)\.(\d\d)\.(\d{3})\.(\d{3}) . slot +(\S+): id +(\d+) \| task (-?\d+) \| (.*)$")
_TIMING = re.compile(r" *(prompt eval|eval) time = +([\d.]+) ms / +(\d+) tokens")


class Task:
	"""A run on a slot, as the log tells; times in ns of the log's own clock."""

	def __init__(self, task, slot, launch):
		self.task, self.slot, self.launch, self.end = task, slot, launch, None
		self.prompt_n = self.predicted_n = self.prompt_ms = self.predicted_ms = None
		self.printed = self.request = None

	def key(self):
		return (self.prompt_n, self.prompt_ms, self.predicted_n, self.predicted_ms)


def read_log(path):
	tasks, on_slot = [], {}
	with open(path, errors="replace") as f:
		for line in f:
			m = _LINE.match(line.rstrip("\n"))
			if not m:
				continue
			mins, secs, ms, us, what, slot, task, rest = m.groups()
			at = ((int(mins) * 60 + int(secs)) * 1000000 + int(ms) * 1000 + int(us)) * 1000
			slot, task = int(slot), int(task)
			if what == "launch_slot_":
				on_slot[slot] = Task(task, slot, at)
				tasks.append(on_slot[slot])
				continue
			t = on_slot.get(slot)
			if not t or t.task != task:
				continue
			if what == "release":
				t.end = at
			timing = _TIMING.match(rest) if what == "print_timing" else None
			if timing and timing.group(1) == "prompt eval":
				t.prompt_n, t.prompt_ms, t.printed = int(timing.group(3)), timing.group(2), at
			elif timing:
				t.predicted_n, t.predicted_ms = int(timing.group(3)), timing.group(2)
	return tasks


def count_launches(path):
	try:
		with open(path, errors="replace") as f:
			return sum("launch_slot_" in line for line in f)
	except OSError:
		return 0


def _keys_of(timings):
	"""As the log prints them; the two may round half a hundredth differently."""
	def two(ms):
		return {"%.2f" % (ms + d) for d in (-1e-4, 0, 1e-4)}
	return {(timings["prompt_n"], a, timings["predicted_n"], b)
		for a in two(timings["prompt_ms"]) for b in two(timings["predicted_ms"])}


class Truth:
	"""Tasks of the log, each with the request of the load that it served."""

	def __init__(self, log_path, requests):
		self.tasks = read_log(log_path)
		by_key = {}
		for t in self.tasks:
			by_key.setdefault(t.key(), []).append(t)
		self.task_of = {}		# x_request_id -> Task
		self.unclear = []		# requests whose task the log does not give away
		for r in requests:
			if r["state"] == "complete":
				found = [t for k in _keys_of(r["timings"]) for t in by_key.get(k, [])]
				self._take(r, found)
		self.offset_ns = self._clock(requests)
		for r in requests:
			if r["state"] == "aborted":
				self._take(r, [t for t in self.tasks if t.request is None and t.printed is None and
					r["t_send_start_ns"] <= t.launch + self.offset_ns <= r["t_close_ns"]])

	def _take(self, r, found):
		found = [t for t in found if t.request is None]
		if len(found) == 1:
			found[0].request = r["x_request_id"]
			self.task_of[r["x_request_id"]] = found[0]
		else:
			self.unclear.append(r["x_request_id"])

	def _clock(self, requests):
		"""Monotonic ns at the log's zero: no client saw its end before the server logged it."""
		return min(r["t_done_ns"] - self.task_of[r["x_request_id"]].printed for r in requests
			if r["x_request_id"] in self.task_of and r["state"] == "complete")

	def owner(self, slot, t0_ns, t1_ns):
		"""The task that had the slot while a step ran."""
		for t in self.tasks:
			begin = t.launch + self.offset_ns - SLACK_NS
			end = (t.end if t.end is not None else 1 << 62) + self.offset_ns + SLACK_NS
			if t.slot == slot and begin <= t0_ns and t1_ns <= end:
				return t
		return None


def join_share(truth, rep, name_of):
	"""Of all tokens in steps: how many are with the request that they were computed for.

	name_of: id in the report -> x_request_id. Returns (right, wrong, alone, wrong sequences)."""
	seqs = {q["id"]: (r, q) for r in rep["requests"] for q in r["seqs"]}
	right = wrong = alone = 0
	bad = {}
	for step in rep["steps"]:
		t0, t1 = (rep["t0_ns"] + step[k] * 1e6 for k in ("t0_ms", "t1_ms"))
		for seq, _, n in step["members"]:
			if seq not in seqs:
				alone += n
				continue
			r, q = seqs[seq]
			task = truth.owner(q["slot"], t0, t1)
			if task and task.request and task.request == name_of.get(r["id"]):
				right += n
			else:
				wrong += n
				bad[seq] = (r, q)
	return right, wrong, alone, list(bad.values())


def quantiles(values):
	v = sorted(values)
	at = lambda q: v[max(0, math.ceil(q * len(v)) - 1)]	# nearest rank
	return {"n": len(v), "p50": at(.5), "p99": at(.99), "max": v[-1], "min": v[0]} if v else None
