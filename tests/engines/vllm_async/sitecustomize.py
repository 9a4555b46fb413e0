# SPDX-License-Identifier: Apache-2.0
"""Lets vLLM's CPU backend plan ahead (asynchronous scheduling), as servers on GPUs do by default.

The backend turns that off because it gains nothing, not because it could not: the scheduler needs to
know of no device. The worker stays as it is, and takes one planned step after the other. For tests, by
PYTHONPATH; vLLM itself is not changed.
"""
import importlib.abc
import importlib.machinery
import sys


def in_engine(module):
	real = module.CpuPlatform.check_and_update_config.__func__

	def check(cls, vllm_config):
		real(cls, vllm_config)
		vllm_config.scheduler_config.async_scheduling = True
		print("vllm_async: the scheduler plans ahead", file=sys.stderr, flush=True)

	module.CpuPlatform.check_and_update_config = classmethod(check)


def in_worker(module):
	real = module.CPUWorker.__init__

	def init(self, vllm_config, *args, **kw):
		vllm_config.scheduler_config.async_scheduling = False
		real(self, vllm_config, *args, **kw)

	module.CPUWorker.__init__ = init


PATCHES = {"vllm.platforms.cpu": in_engine, "vllm.v1.worker.cpu_worker": in_worker}


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
