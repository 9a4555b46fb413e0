# SPDX-License-Identifier: Apache-2.0
"""Changes a vLLM that is started with this folder in PYTHONPATH, for tests; its files stay as they are.
TL_VLLM_PATCH names what to change, comma between:

async  The CPU backend plans ahead (asynchronous scheduling), as servers on GPUs do by default. It turns
       that off because it gains nothing, not because it could not: the scheduler needs to know of no
       device, and the worker takes one planned step after the other.
log    The engine logs its steps in the words of --enable-logging-iteration-details, without that flag
       and also with several API servers, where nobody would.
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
				"CPU KV cache usage: %.1f%%" % (os.getpid(), self.tl_step, d.num_ctx_requests, d.num_ctx_tokens, d.num_generation_requests,
				d.num_generation_tokens, 100 * self.kv_cache_manager.usage))
			self.tl_step += 1
		return outputs

	module.Scheduler.tl_step = 0
	module.Scheduler.update_from_output = update


WHAT = os.environ.get("TL_VLLM_PATCH", "").split(",")
PATCHES = {}
if "async" in WHAT:
	PATCHES.update({"vllm.platforms.cpu": plan_ahead, "vllm.v1.worker.cpu_worker": do_not_plan_ahead})
if "log" in WHAT:
	PATCHES["vllm.v1.core.sched.scheduler"] = log_steps


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
