# SPDX-License-Identifier: Apache-2.0
"""Changes a vLLM that is started with this folder in PYTHONPATH, for tests; its files stay as they are.
TL_VLLM_PATCH names what to change, comma between:

async  The CPU backend plans ahead (asynchronous scheduling), as servers on GPUs do by default. It turns
       that off because it gains nothing, not because it could not: the scheduler needs to know of no
       device, and the worker takes one planned step after the other.
uni    The engine computes in its own process, as it does on one GPU. For a CPU it starts a worker, to set
       OMP_NUM_THREADS there; tools/vllm-engine sets it for all.
hog    Inside the engine process, while the file TL_HOG_FILE is there: if it is empty, a thread keeps the GIL
       for TL_HOG_MS every TL_HOG_EVERY_MS (a regular expression); if it says "gc", all garbage is collected
       as often, with many objects.
log    The engine logs its steps in the words of --enable-logging-iteration-details, without that flag
       and also with several API servers, where nobody would; with how many gave output, and wait.
"""
import importlib.abc
import importlib.machinery
import os
import sys


def say(text):
	print(text, file=sys.stderr, flush=True)


def plan_ahead(module):
	real = module.CpuPlatform.check_and_update_config.__func__

	def check(cls, vllm_config):
		real(cls, vllm_config)
		vllm_config.scheduler_config.async_scheduling = True
		say("vllm_patch: the scheduler plans ahead")

	module.CpuPlatform.check_and_update_config = classmethod(check)


def compute_in_engine(module):
	real = module.CpuPlatform.check_and_update_config.__func__

	def check(cls, vllm_config):
		real(cls, vllm_config)
		vllm_config.parallel_config.distributed_executor_backend = "uni"

	module.CpuPlatform.check_and_update_config = classmethod(check)


def do_not_plan_ahead(module):
	real = module.CPUWorker.__init__

	def init(self, vllm_config, *args, **kw):
		vllm_config.scheduler_config.async_scheduling = False
		real(self, vllm_config, *args, **kw)

	module.CPUWorker.__init__ = init


def log_steps(module):
	real = module.Scheduler.update_from_output

	def update(self, scheduler_output, *args, **kw):
		from vllm.v1.utils import compute_iteration_details
		outputs = real(self, scheduler_output, *args, **kw)
		if scheduler_output.total_num_scheduled_tokens:
			d = compute_iteration_details(scheduler_output)
			say("(pid=%d) Engine 000: Iteration(%d): %d context requests, %d context tokens, %d generation requests, %d generation tokens, "
				"CPU KV cache usage: %.1f%%, %d outputs, %d waiting" % (os.getpid(), self.tl_step, d.num_ctx_requests, d.num_ctx_tokens,
				d.num_generation_requests, d.num_generation_tokens, 100 * self.kv_cache_manager.usage,
				sum(len(o.outputs) for o in outputs.values()), len(self.waiting)))
			self.tl_step += 1
		return outputs

	module.Scheduler.tl_step = 0
	module.Scheduler.update_from_output = update


def calibrate(ms):
	"""How many letters take this long."""
	import re
	import time
	for n in range(14, 30):
		t0 = time.monotonic()
		re.match("(a|a)*b", "a" * n)
		if time.monotonic() - t0 >= ms / 2000:
			return n
	return 30


def hog_thread():
	import ctypes
	import re
	import time
	ctypes.CDLL(None).prctl(15, b"gil-hog", 0, 0, 0)
	path, n = os.environ["TL_HOG_FILE"], None
	while True:
		time.sleep(float(os.environ.get("TL_HOG_EVERY_MS", 500)) / 1000)
		if not os.path.exists(path) or open(path).read().strip():
			continue
		n = n or calibrate(float(os.environ.get("TL_HOG_MS", 200)))
		re.match("(a|a)*b", "a" * n)


def collect_now_and_then(module):
	import gc
	import threading
	import time
	real, state = module.Scheduler.schedule, {"next": 0.0, "kept": None}
	threading.Thread(target=hog_thread, daemon=True).start()
	path = os.environ["TL_HOG_FILE"]

	def schedule(self, *args, **kw):
		if time.monotonic() >= state["next"] and os.path.exists(path) and open(path).read().strip() == "gc":
			state["kept"] = state["kept"] or [[i] for i in range(2000000)]
			gc.collect()
			state["next"] = time.monotonic() + float(os.environ.get("TL_HOG_EVERY_MS", 500)) / 1000
		return real(self, *args, **kw)

	module.Scheduler.schedule = schedule


WHAT = os.environ.get("TL_VLLM_PATCH", "").split(",")
PATCHES = {}
if "async" in WHAT:
	PATCHES.update({"vllm.platforms.cpu": plan_ahead, "vllm.v1.worker.cpu_worker": do_not_plan_ahead})
if "uni" in WHAT:
	PATCHES["vllm.platforms.cpu"] = compute_in_engine
if "log" in WHAT:
	PATCHES["vllm.v1.core.sched.scheduler"] = log_steps
if "hog" in WHAT:
	PATCHES["vllm.v1.core.sched.scheduler"] = collect_now_and_then


class Patcher(importlib.abc.MetaPathFinder):
	def find_spec(self, name, path, target=None):
		if name not in PATCHES:
			return None
		spec = importlib.machinery.PathFinder.find_spec(name, path)
		run = spec.loader.exec_module

		def run_and_patch(module):
			run(module)
			PATCHES[name](module)

		spec.loader.exec_module = run_and_patch
		return spec


sys.meta_path.insert(0, Patcher())
