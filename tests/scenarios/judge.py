# SPDX-License-Identifier: Apache-2.0
"""Is what tokenlag says of a scenario what the scenario knows?"""
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("B", "build"))
TOKENLAG = os.environ.get("TOKENLAG", os.path.join(BUILD, "tokenlag"))
OWN = ("own_decode", "own_prefill", "own_front", "own_delivery")
NO_BLAME = OWN + ("lost_events", "unexplained")
TYPES = ("none", "request", "thread", "process", "cgroup", "device", "rank", "client", "network")


def mechanism_names():
	with open(os.path.join(ROOT, "agent/model/mechanism.c"), encoding="ascii") as f:
		names = f.read().split("mechanism_labels", 1)[0]
	return set(re.findall(r'= "([a-z_]+)"', names))


MECHANISMS = mechanism_names()


def tolerance(ms):
	return max(1.0, 0.01 * abs(ms))


def percentile(values, p):
	"""Nearest rank."""
	v = sorted(values)
	return v[max(0, -(-len(v) * p // 100) - 1)]


class Part:
	def __init__(self, row):
		self.mechanism, self.culprit, self.ms, self.provenance = row[:4]

	@property
	def ns(self):
		return round(self.ms * 1e6)


class Answer:
	"""What tokenlag says of one recording."""

	def __init__(self, path):
		self.path = path
		self.report = json.loads(self.run("report", "--json", "--all", "--no-steps", "--no-self"))
		self.blame = json.loads(self.run("blame", "--json"))
		self.requests = {r["id"]: r for r in self.report["requests"]}
		self.parts_of, self.sums_of = {}, {}

	def run(self, command, *args):
		out = subprocess.run([TOKENLAG, "-q", command, self.path, *args], text=True,
				     capture_output=True, timeout=120)
		if out.returncode:
			raise RuntimeError("%s: status %d: %s" % (command, out.returncode, out.stderr.strip()))
		return out.stdout

	def text(self, command):
		"""'blame', 'report', or 'why:r3'."""
		name, _, request = command.partition(":")
		return self.run(name, *([request] if request else []))

	def gaps(self, request):
		"""[(token, ms, [parts])] of all its gaps."""
		if request not in self.parts_of:
			self.parts_of[request] = [(g[0], g[1], [Part(p) for p in g[2]])
						  for g in self.requests[request]["gaps"] or []]
		return self.parts_of[request]

	def ttft(self, request):
		return [Part(p) for p in self.requests[request]["ttft_parts"] or []]

	def sums(self, request):
		"""Over its gaps: {(mechanism, culprit as text): [ms, culprit, provenances]}."""
		if request not in self.sums_of:
			sums = {}
			for _, _, parts in self.gaps(request):
				for p in parts:
					key = p.mechanism, json.dumps(p.culprit, sort_keys=True)
					s = sums.setdefault(key, [0, p.culprit, set()])
					s[0] += p.ms
					s[2].add(p.provenance)
			self.sums_of[request] = sums
		return self.sums_of[request]


def play(text, fn):
	"""Imports JSON lines and returns fn(answer)."""
	fd, path = tempfile.mkstemp(suffix=".tlag")
	os.close(fd)
	try:
		out = subprocess.run([TOKENLAG, "-q", "import", "-", "-F", "-o", path], input=text, text=True,
				     capture_output=True, timeout=120)
		if out.returncode:
			raise RuntimeError("import: " + out.stderr.strip())
		return fn(Answer(path))
	finally:
		os.unlink(path)


def keep(name, text):
	"""Leaves the JSON lines where a person finds them."""
	folder = os.path.join(BUILD, "scenarios")
	os.makedirs(folder, exist_ok=True)
	with open(os.path.join(folder, name + ".jsonl"), "w", encoding="ascii") as f:
		f.write(text)
	return text


def tap(todo):
	"""Runs [(name, function)], each of which returns what is wrong; prints TAP. The exit status."""
	print("1..%d" % len(todo), flush=True)
	failed = 0
	for i, (name, fn) in enumerate(todo, 1):
		try:
			bad = fn()
		except Exception as e:  # pylint: disable=broad-except
			bad = ["%s: %s" % (type(e).__name__, e)]
		print("%s %d - %s" % ("not ok" if bad else "ok", i, name))
		for line in bad:
			print("#   " + line.replace("\n", " "))
		sys.stdout.flush()
		failed += bool(bad)
	return 1 if failed else 0


# ---- what holds for every recording ----

def sound(rec, answer):
	"""Parts add up to the ns, mechanisms are known, culprits exist, nothing is negative."""
	bad = []
	followed = {"r%d" % e.fields["req"] for e in rec.events
		    if e.fields["kind"] in ("delivered", "send_held", "send_blocked")}
	for rid, r in answer.requests.items():
		for token, ms, parts in answer.gaps(rid):
			bad += _sound_parts(answer, "%s token %d" % (rid, token), ms, parts)
		if r["ttft_parts"]:
			bad += _sound_ttft(answer, rid, r, rid in followed)
		if r["open_gap"]:
			bad += _sound_open(answer, rid, r)
	return bad


def _sound_ttft(answer, rid, r, followed):
	"""Of a request that somebody saw behind the socket it ends there, else with the write."""
	parts = answer.ttft(rid)
	total = sum(p.ns for p in parts)
	bad = _sound_parts(answer, rid + " TTFT", total / 1e6, parts)
	more = total - sum(p.ns for p in parts if p.mechanism == "before_host") - round(r["ttft_ms"] * 1e6)
	if more < 0 or (more and not followed):
		bad.append("%s: TTFT parts sum to %.6f, TTFT is %.6f" % (rid, total / 1e6, r["ttft_ms"]))
	return bad


def _sound_open(answer, rid, r):
	"""Of one that has not ended; its token is the one behind the last that came."""
	token, ms, parts = r["open_gap"]
	bad = _sound_parts(answer, rid + " open", ms, [Part(p) for p in parts])
	if r["state"] != "truncated":
		bad.append("%s: is %s and has an open gap" % (rid, r["state"]))
	if token and token <= max([g[0] for g in r["gaps"] or []] or [0]):
		bad.append("%s: waits for token %d, and has had it" % (rid, token))
	return bad


def _sound_parts(answer, where, ms, parts):
	bad = []
	if sum(p.ns for p in parts) != round(ms * 1e6):
		bad.append("%s: parts sum to %.6f, not %.6f" % (where, sum(p.ns for p in parts) / 1e6, ms))
	for p in parts:
		c = p.culprit
		if p.mechanism not in MECHANISMS:
			bad.append("%s: no mechanism %r" % (where, p.mechanism))
		if p.ms < 0:
			bad.append("%s: %s %.6f" % (where, p.mechanism, p.ms))
		if c is not None and c.get("type") not in TYPES:
			bad.append("%s: no culprit %r" % (where, c))
		if c is not None and c.get("type") == "request" and str(c["id"])[0] == "r" and \
		   c["id"] not in answer.requests:
			bad.append("%s: no request %s" % (where, c["id"]))
	return bad[:3]


def gaps_are_true(sc, answer):
	"""The gaps themselves are those that the generator wrote."""
	bad = []
	for q in sc.rec_requests:
		if q.id in sc.client_side or q.id not in answer.requests or not q.stream:
			continue
		got = [ms for _, ms, _ in answer.gaps(q.id)]
		if len(got) != len(q.gaps) or any(abs(a - b) > 1e-3 for a, b in zip(got, q.gaps)):
			bad.append("%s: %d gaps of %.3f in all, not %d of %.3f" % (
				q.name, len(got), sum(got), len(q.gaps), sum(q.gaps)))
	return bad[:3]


# ---- what a scenario expects ----

def blames(sc, answer, provenance=True):
	bad = []
	for victim, mechanism, who, lo, hi, root, prov in sc.blames:
		fits = [s for (m, _), s in answer.sums(victim.id).items()
			if m == mechanism and (who is None or who.fits(s[1]))]
		ms = sum(s[0] for s in fits)
		if not lo - tolerance(lo) <= ms <= hi + tolerance(hi):
			bad.append("%s: %s by %s %.3f, not %s: %s" % (
				victim.name, mechanism, who, ms, lo if lo == hi else "%s to %s" % (lo, hi),
				_short(answer, victim.id)))
		if provenance and prov and any(s[2] != {prov} for s in fits):
			bad.append("%s: %s is %s, not %s" % (victim.name, mechanism, fits[0][2], prov))
		if root and not _has_root(answer, victim, mechanism, root):
			bad.append("%s: %s has not the root %s" % (victim.name, mechanism, root))
	return bad[:6]


def _has_root(answer, victim, mechanism, root):
	return all(root.fits((s[1] or {}).get("root")) for (m, _), s in answer.sums(victim.id).items()
		   if m == mechanism)


def _short(answer, request):
	rows = sorted(answer.sums(request).items(), key=lambda x: -x[1][0])
	return ", ".join("%s(%s) %.1f" % (k[0], (s[1] or {}).get("id", "-"), s[0]) for k, s in rows[:5])


def _expected(sc, victim, mechanism, culprit):
	if culprit and culprit["type"] == "request" and str(culprit["id"])[0] == "s":
		culprit = None	# a sequence that no request has: the mechanism must do
	for v, m, who, *_ in sc.blames:
		if v.id == victim and m == mechanism and (who is None or not culprit or who.fits(culprit)):
			return True
	return any(m == mechanism and (who is None or who.fits(culprit)) for m, who in sc.allowed)


def nothing_else(sc, answer, not_blame=OWN):
	"""No other cause above 10 % of a victim's excess; of one without any, of its gap time."""
	bad = []
	for rid in answer.requests:
		limit = sc.excess.get(rid)
		if limit is None:
			limit = sum(ms for _, ms, _ in answer.gaps(rid))
		for (mechanism, _), (ms, culprit, _) in answer.sums(rid).items():
			if mechanism not in not_blame and ms > 0.1 * limit and \
			   not _expected(sc, rid, mechanism, culprit):
				bad.append("%s: %s by %s %.3f has no reason" % (rid, mechanism, culprit, ms))
	return bad[:4]


def ttfts(sc, answer):
	bad = []
	for victim, total, parts in sc.ttfts:
		got = answer.ttft(victim.id)
		whole = sum(p.ms for p in got)
		if abs(whole - total) > tolerance(total):
			bad.append("%s: TTFT %.3f, not %s" % (victim.name, whole, total))
		for mechanism, (who, ms) in parts.items():
			is_ms = sum(p.ms for p in got if p.mechanism == mechanism and
				    (who is None or who.fits(p.culprit)))
			if abs(is_ms - ms) > tolerance(ms):
				bad.append("%s: TTFT has %s by %s %.3f, not %s: %s" % (
					victim.name, mechanism, who, is_ms, ms,
					[(p.mechanism, p.ms) for p in got]))
		for p in got:
			if p.mechanism not in OWN and p.mechanism not in parts and p.ms > 0.1 * total:
				bad.append("%s: TTFT has %s %.3f without reason" % (victim.name, p.mechanism, p.ms))
	return bad


def opens(sc, answer):
	"""What requests still waited for, and nothing of the kind of any other."""
	bad = []
	expected = {victim.id for victim, *_ in sc.opens}
	for victim, token, ms, parts in sc.opens:
		got = answer.requests[victim.id]["open_gap"]
		if not got:
			bad.append("%s: waits for nothing" % victim.name)
			continue
		have = [Part(p) for p in got[2]]
		if got[0] != token or abs(got[1] - ms) > tolerance(ms):
			bad.append("%s: waits for token %d since %.3f, not %d since %s" % (victim.name, got[0], got[1], token, ms))
		for mechanism, (who, part) in parts.items():
			is_ms = sum(p.ms for p in have if p.mechanism == mechanism and (who is None or who.fits(p.culprit)))
			if abs(is_ms - part) > tolerance(part):
				bad.append("%s: waits %.3f for %s by %s, not %s: %s" % (victim.name, is_ms, mechanism, who, part,
					[(p.mechanism, p.ms) for p in have]))
		bad += ["%s: waits %.3f for %s without reason" % (victim.name, p.ms, p.mechanism) for p in have
			if p.mechanism not in OWN and p.mechanism not in parts and p.ms > 0.1 * ms]
	if sc.opens:
		bad += ["%s: waits for something" % rid for rid, r in answer.requests.items()
			if r["open_gap"] and rid not in expected]
	return bad[:6]


def numbers(sc, answer):
	bad = []
	for victim, wanted in sc.gap_checks:
		gaps = answer.gaps(victim.id)
		ms = [g[1] for g in gaps] or [0]
		have = {"n": len(gaps), "mean": sum(ms) / len(ms), "max": max(ms), "p50": percentile(ms, 50),
			"p95": percentile(ms, 95), "p99": percentile(ms, 99)}
		for key, value in wanted.items():
			if key == "quiet":
				blame = sum(p.ms for p in gaps[value - 1][2] if p.mechanism not in OWN)
				if blame > 1:
					bad.append("%s: gap %d is no stall, %.3f is blamed" % (
						victim.name, value, blame))
			elif key == "count":
				for length, n in value.items():
					got = sum(1 for m in ms if abs(m - length) < 0.5)
					if got != n:
						bad.append("%s: %d gaps of %s, not %d" % (victim.name, got, length, n))
			elif abs(have[key] - value) > (0 if key == "n" else 0.01 * value + 0.06):
				bad.append("%s: %s of its gaps %.3f, not %s" % (victim.name, key, have[key], value))
	return bad


def totals(sc, answer):
	rows = {m["mechanism"]: m for m in answer.blame["blame"]["by_mechanism"]}
	bad = []
	for mechanism, ms, within in sc.totals:
		got = rows.get(mechanism, {"gaps_ms": 0})["gaps_ms"]
		if abs(got - ms) > (tolerance(ms) if within is None else within):
			bad.append("%s: %.3f in all gaps, not %s" % (mechanism, got, ms))
	for mechanism, row in rows.items():
		if sc.cleared is not None and mechanism not in OWN + sc.cleared and row["above_pct"] is not None and \
		   row["above_pct"] > 1 and row["ms"] > 1:
			bad.append("%s has %.3f, %.1f %% of what is above baseline" % (
				mechanism, row["ms"], row["above_pct"]))
	return bad[:4]


def gap_parts(sc, answer):
	bad = []
	for victim, ms, wanted in sc.gap_parts:
		like = [parts for _, is_ms, parts in answer.gaps(victim.id) if abs(is_ms - ms) < 0.5]
		if not like:
			bad.append("%s: no gap of %s" % (victim.name, ms))
		for parts in like:
			for mechanism, part in wanted.items():
				got = sum(p.ms for p in parts if p.mechanism == mechanism)
				if abs(got - part) > tolerance(part):
					bad.append("%s: gap of %s has %s %.3f, not %s" % (
						victim.name, ms, mechanism, got, part))
	return bad[:4]


def _number(row, key):
	for k in key.split("__"):
		row = (row or {}).get(k)
	return row


def hows(sc, answer):
	"""The numbers behind a mechanism, and the sentence with them."""
	rows = {h["mechanism"]: h for h in answer.blame["blame"]["how"]}
	text = " ".join(answer.text("blame").split()) if sc.hows else ""
	bad = []
	for mechanism, pattern, numbers_ in sc.hows:
		row = rows.get(mechanism)
		if not row:
			bad.append("nothing is said of how %s took its time" % mechanism)
			continue
		if not re.search(pattern, row["text"]):
			bad.append("how: %r is not in %r" % (pattern, row["text"]))
		if row["text"] not in text:
			bad.append("how: not in `tokenlag blame`: %r" % row["text"])
		for key, value in numbers_.items():
			got = _number(row, key)
			if got is None or abs(got - value) > max(0.05, 0.01 * abs(value)):
				bad.append("how: %s of %s is %r, not %s" % (key, mechanism, got, value))
	return bad[:6]


def is_clean(sc, answer):
	bad = []
	for rid in answer.requests:
		limit = 0.1 * sum(ms for _, ms, _ in answer.gaps(rid))
		charged = sum(s[0] for (m, _), s in answer.sums(rid).items() if m not in OWN)
		if charged > limit:
			bad.append("%s: %.3f is charged where nothing is wrong: %s" % (
				rid, charged, _short(answer, rid)))
	return bad


def quiet_when_lost(sc, answer):
	"""No blame for what lies where events were lost."""
	bad = []
	since, until = sc.no_blame_in
	for rid, r in answer.requests.items():
		if r["points"]["first_token_wire"] is None:
			continue
		t = r["t0_ms"] + r["points"]["first_token_wire"] - sc.first_ms(answer)
		for token, ms, parts in answer.gaps(rid):
			if t < until - 1e-6 and t + ms > since + 1e-6:
				for p in parts:
					if p.mechanism not in OWN + ("lost_events",):
						bad.append("%s token %d at %.1f: %s %.3f" % (
							rid, token, t, p.mechanism, p.ms))
			t += ms
	return bad[:3]


def words(sc, answer):
	bad, texts = [], {}
	names = {q.name: q.id for q in sc.rec_requests}
	for command, pattern, wanted in sc.says:
		name, _, request = command.partition(":")
		command = name + (":" + names[request] if request else "")
		if command not in texts:
			texts[command] = answer.text(command)
		if bool(re.search(pattern, texts[command])) != wanted:
			bad.append("%s %s %r" % (command, "does not say" if wanted else "says", pattern))
	return bad


def claims(sc, answer):
	"""The verdict on what other tools say of requests, and what its sentence says."""
	bad = []
	said = {}
	for c in answer.report.get("claims", []):
		said.setdefault((c["request"], c["metric"]), []).append(c)
	for (request, metric), (verdict, numbers_) in sc.claims.items():
		for c in said.get((request, metric), [{"verdict": "none", "text": ""}]):
			if c["verdict"] != (verdict or "right"):
				bad.append("claim of %s on %s is not %s: %s" % (
					metric, request, verdict or "right", c))
			for key, value in numbers_.items():
				if abs((c.get(key) or 0) - value) > (tolerance(value) if key.endswith("_ms")
								     else 0.01 * value):
					bad.append("claim of %s on %s: %s is not %s: %s" % (
						metric, request, key, value, c))
	return bad[:12]


def checks(sc, answer):
	bad = []
	for what, fn in sc.json:
		wrong = fn(answer.report, answer.blame)
		if wrong:
			bad.append("%s: %s" % (what, wrong))
	return bad


def whole(sc, answer):
	"""Everything that is expected of a scenario as it is."""
	bad = sound(sc.rec, answer) + numbers(sc, answer) + blames(sc, answer) + ttfts(sc, answer) + words(sc, answer) + \
		checks(sc, answer) + claims(sc, answer) + totals(sc, answer) + gap_parts(sc, answer) + hows(sc, answer) + opens(sc, answer)
	if sc.no_blame_in:
		bad += quiet_when_lost(sc, answer)
	else:
		bad += gaps_are_true(sc, answer)
	return bad + (is_clean(sc, answer) if sc.clean else nothing_else(sc, answer))
