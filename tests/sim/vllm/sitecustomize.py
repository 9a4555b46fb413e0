# SPDX-License-Identifier: Apache-2.0
"""Makes a vLLM that is started with this folder in PYTHONPATH drive the simulated CUDA: its CPU worker enqueues
a step's kernels before each forward pass and waits for them after it, as the GPU worker would. vLLM's
files stay as they are.

TL_SIM_CUDA   path of the simulated library: build/sim/private/libcuda.so.1, which nobody finds by its usual name
              (the CUDA runtime that PyTorch brings must not run on it)
TL_SIM_TRUTH  file for what happened, as JSON lines like those of simserve
"""
import ctypes
import importlib.abc
import importlib.machinery
import json
import os
import sys
import time

LAYERS, DECODE_US, TOKEN_NS = 4, 1500, 2000
NAMES = ("rms_norm_kernel", "qkv_gemm", "flash_attn_kernel", "o_proj_gemm", "gate_up_gemm", "down_gemm")


class Work(ctypes.Structure):	# struct sim_work
	_fields_ = [(n, ctypes.c_uint32) for n in ("kind", "corr", "device", "context", "stream", "graph", "copy", "sync")] + [
		("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3), ("shmem", ctypes.c_uint32), ("value", ctypes.c_uint32)] + [
		(n, ctypes.c_uint64) for n in ("node", "bytes", "start_ns", "end_ns")] + [("name", ctypes.c_char_p)]


WATCH = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Work))


class Device:
	def __init__(self):
		self.cuda = ctypes.CDLL(os.environ["TL_SIM_CUDA"], mode=ctypes.RTLD_GLOBAL)
		self.stream, context, module = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
		self.call("cuInit", 0)
		self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
		self.call("cuCtxSetCurrent", context)
		self.call("cuStreamCreate", ctypes.byref(self.stream), 1)
		self.call("cuModuleLoadData", ctypes.byref(module), b"")
		self.functions = [ctypes.c_void_p() for _ in NAMES]
		for f, name in zip(self.functions, NAMES):
			self.call("cuModuleGetFunction", ctypes.byref(f), module, name.encode())
		self.graphs, self.kernels, self.n = {}, [], 0
		self.watch = WATCH(self.note)
		self.cuda.tokenlag_sim_watch(self.watch, None)
		path = os.environ.get("TL_SIM_TRUTH")
		self.truth = open(path, "a", buffering=1) if path else None

	def call(self, name, *args):
		err = getattr(self.cuda, name)(*args)
		if err:
			raise RuntimeError(f"{name}: {err}")

	def note(self, _, work):
		w = work.contents
		if w.kind == 1:
			self.kernels.append([w.name.decode(), w.device, w.stream, w.start_ns, w.end_ns])

	def forward(self, ns):
		dur = ctypes.c_uint64(ns // (LAYERS * len(NAMES)))
		args = (ctypes.c_void_p * 2)(ctypes.addressof(dur), None)
		for _ in range(LAYERS):
			for f in self.functions:
				self.call("cuLaunchKernel", f, 1, 1, 1, 128, 1, 1, 0, self.stream, args, None)

	def graph(self, n):
		if n not in self.graphs:
			graph, exec_ = ctypes.c_void_p(), ctypes.c_void_p()
			self.call("cuStreamBeginCapture_v2", self.stream, 0)
			self.forward(DECODE_US * 1000)
			self.call("cuStreamEndCapture", self.stream, ctypes.byref(graph))
			self.call("cuGraphInstantiateWithFlags", ctypes.byref(exec_), graph, ctypes.c_ulonglong(0))
			self.graphs[n] = exec_
		return self.graphs[n]

	def begin(self, scheduled):
		self.t0, self.kernels = time.monotonic_ns(), []
		if all(n == 1 for n in scheduled.values()):
			size = 1 << (len(scheduled) - 1).bit_length()
			self.call("cuGraphLaunch", self.graph(size), self.stream)
			self.how = "hit" if size == len(scheduled) else "padded"
		else:
			self.forward(DECODE_US * 1000 + sum(scheduled.values()) * TOKEN_NS)
			self.how = "miss"
		self.launched = time.monotonic_ns()

	def end(self, scheduled):
		self.call("cuStreamSynchronize", self.stream)
		self.n += 1
		if self.truth:
			print(json.dumps({"step": self.n, "t0_ns": self.t0, "t1_ns": time.monotonic_ns(), "t_launched_ns": self.launched,
				"graph": self.how, "members": [[r, "d" if n == 1 else "p", n] for r, n in scheduled.items()],
				"kernels": self.kernels}), file=self.truth)


def drive(module):
	real, state = module.CPUModelRunner.execute_model, {}

	def execute_model(self, scheduler_output, *args, **kw):
		scheduled = dict(scheduler_output.num_scheduled_tokens)
		if not scheduled:
			return real(self, scheduler_output, *args, **kw)
		device = state.get("device")
		if not device:
			device = state["device"] = Device()
			print("sim: the worker drives simulated CUDA", file=sys.stderr, flush=True)
		device.begin(scheduled)
		try:
			return real(self, scheduler_output, *args, **kw)
		finally:
			device.end(scheduled)

	module.CPUModelRunner.execute_model = execute_model


class Finder(importlib.abc.MetaPathFinder):
	def find_spec(self, name, path, target=None):
		if name != "vllm.v1.worker.cpu_model_runner":
			return None
		spec = importlib.machinery.PathFinder.find_spec(name, path)
		run = spec.loader.exec_module

		def run_and_drive(module):
			run(module)
			drive(module)

		spec.loader.exec_module = run_and_drive
		return spec


if os.environ.get("TL_SIM_CUDA"):
	sys.meta_path.insert(0, Finder())
