# SPDX-License-Identifier: Apache-2.0
"""What a decoder must find in a vLLM engine message: read off the release's own objects by name.

Both scripts of this folder use it, so the facts never come from positions in the bytes.
"""
import json
import os


def get(o, *names):
	"""The first attribute there is; releases rename and drop fields."""
	for name in names:
		if hasattr(o, name):
			return getattr(o, name)
	return None


def request(r):
	p = r.sampling_params
	return {
		"kind": "add", "elements": len(r.__struct_fields__), "request_id": r.request_id, "external_id": get(r, "external_req_id"),
		"prompt_tokens": len(r.prompt_token_ids), "arrival_time": r.arrival_time, "max_tokens": p.max_tokens,
		"client_index": get(r, "client_index"), "priority": get(r, "priority"),
	}


def abort(ids):
	return {"kind": "abort", "request_ids": list(ids)}


def row(o):
	prefill = get(o, "prefill_stats")
	return {
		"elements": len(o.__struct_fields__), "request_id": o.request_id, "tokens": len(o.new_token_ids),
		"finish_reason": None if o.finish_reason is None else int(o.finish_reason), "stop_reason": o.stop_reason,
		"events": [[int(e.type), e.timestamp] for e in get(o, "events") or []],
		"prompt_tokens": prefill and prefill.num_prompt_tokens,
		"cached_tokens": prefill.num_cached_tokens if prefill else get(o, "num_cached_tokens"),
	}


def stats(s):
	prefix, spec = get(s, "prefix_cache_stats"), get(s, "spec_decoding_stats")
	counters = ("requests", "queries", "hits", "preempted_requests", "preempted_queries", "preempted_hits")
	return {
		"running": s.num_running_reqs, "waiting": s.num_waiting_reqs, "kv_usage": get(s, "kv_cache_usage", "gpu_cache_usage"),
		"prefix": prefix and {name: get(prefix, name) for name in counters},
		"spec": spec and {"drafted": spec.num_draft_tokens, "accepted": spec.num_accepted_tokens},
		"iteration_details": bool(get(s, "iteration_details")),
	}


def outputs(o):
	return {
		"kind": "outputs", "elements": len(o.__struct_fields__), "engine_index": o.engine_index, "timestamp": o.timestamp,
		"rows": [row(r) for r in o.outputs], "finished": sorted(get(o, "finished_requests") or []),
		"stats": o.scheduler_stats and stats(o.scheduler_stats), "utility": o.utility_output is not None,
	}


def write(path, version, made, messages):
	head = json.dumps({"version": version, "made": made})[1:-1]
	lines = ",\n".join("  " + json.dumps(m) for m in messages)
	with open(path, "w") as f:
		f.write("{%s,\n \"messages\": [\n%s\n ]}\n" % (head, lines))


class Folder:
	"""One folder of messages and the facts.json that goes with them."""

	def __init__(self, path, version, made):
		self.path, self.version, self.made, self.messages = path, version, made, []
		os.makedirs(path, exist_ok=True)

	def add(self, name, payload, facts):
		with open(os.path.join(self.path, name + ".bin"), "wb") as f:
			f.write(payload)
		self.messages.append(dict({"file": name + ".bin"}, **facts))

	def close(self):
		write(os.path.join(self.path, "facts.json"), self.version, self.made, self.messages)
