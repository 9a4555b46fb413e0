/* SPDX-License-Identifier: Apache-2.0 */
/* recognise: processes as they look on real hosts, and those that only look like an engine. */
#include "unit.h"

#include "engine/recognise.h"

#include <string.h>

#define SITE "/opt/venv/lib/python3.12/site-packages"
#define PYTHON "/usr/bin/python3.12"

struct engine_case {
	const char *name;
	const char *comm, *exe;
	const char *cmdline[8];
	const char *libs[3];	/* the first has the symbols */
	const char *symbols[3];
	const char *packages[3];
	uint16_t ports[2];
	uint32_t llama_build;
	bool kernel_thread, ports_unknown;
	/* wanted; engine UNKNOWN: not recognised */
	uint16_t engine;
	const char *role, *version, *why;
	uint32_t tiers;
};

static const struct engine_case cases[] = {
	/* ---- llama.cpp ---- */
	{ .name = "llama-server with a shared library", .comm = "llama-server",
	  .exe = "/app/llama-server",
	  .cmdline = { "/app/llama-server", "-m", "/models/m.gguf", "--port", "8080" },
	  .libs = { "/app/libllama.so.0.1.0", "/app/libggml-base.so" },
	  .symbols = { "llama_process", "llama_decode" }, .ports = { 8080 }, .llama_build = 11549,
	  .engine = TL_ENGINE_LLAMA, .role = "server", .version = "b11549",
	  .why = "command 'llama-server'", .tiers = TL_T0 | TL_T1 },
	{ .name = "llama-server, static, with symbols", .comm = "llama-server",
	  .exe = "/usr/local/bin/llama-server", .cmdline = { "llama-server", "-m", "m.gguf" },
	  .libs = { "/usr/local/bin/llama-server" }, .symbols = { "llama_decode" },
	  .ports = { 8080 }, .engine = TL_ENGINE_LLAMA, .role = "server", .version = "",
	  .why = "command 'llama-server'", .tiers = TL_T0 | TL_T1 },
	{ .name = "llama-server, static, stripped", .comm = "llama-server",
	  .exe = "/usr/local/bin/llama-server", .cmdline = { "llama-server", "-m", "m.gguf" },
	  .libs = { "/usr/local/bin/llama-server" }, .ports = { 8080 }, .engine = TL_ENGINE_LLAMA,
	  .role = "server", .version = "",
	  .why = "command 'llama-server', stripped: no llama_* symbols", .tiers = TL_T0 },
	{ .name = "llama-server of which no file may be read", .comm = "llama-server", .exe = "",
	  .cmdline = { "/app/llama-server", "-m", "m.gguf" }, .engine = TL_ENGINE_LLAMA,
	  .role = "server", .version = "", .why = "command 'llama-server'", .tiers = TL_T0 },
	{ .name = "renamed server", .comm = "my-llm", .exe = "/srv/my-llm",
	  .cmdline = { "/srv/my-llm" }, .libs = { "/srv/my-llm" },
	  .symbols = { "llama_decode", "llama_backend_init" }, .ports = { 80 },
	  .engine = TL_ENGINE_LLAMA, .role = "server", .version = "",
	  .why = "llama_decode in my-llm", .tiers = TL_T0 | TL_T1 },
	{ .name = "xllamacpp in Python", .comm = "python", .exe = PYTHON,
	  .cmdline = { "python", "serve.py" }, .libs = { SITE "/xllamacpp/xllamacpp.abi3.so" },
	  .symbols = { "llama_process", "llama_decode" }, .packages = { "xllamacpp 2026.10.11549" },
	  .ports = { 18099 }, .engine = TL_ENGINE_LLAMA, .role = "server",
	  .version = "xllamacpp 2026.10.11549", .why = "llama_process in xllamacpp.abi3.so",
	  .tiers = TL_T0 | TL_T1 },
	{ .name = "llama_cpp_python in Python, no socket", .comm = "python", .exe = PYTHON,
	  .cmdline = { "python", "ask.py" }, .libs = { SITE "/llama_cpp/lib/libllama.so" },
	  .symbols = { "llama_decode" }, .packages = { "vllm 0.20.0", "llama_cpp_python 0.3.16" },
	  .engine = TL_ENGINE_LLAMA, .role = "library", .version = "llama_cpp_python 0.3.16",
	  .why = "maps libllama.so", .tiers = TL_T0 | TL_T1 },
	{ .name = "python -m llama_cpp.server", .comm = "python3", .exe = PYTHON,
	  .cmdline = { "python3", "-m", "llama_cpp.server", "--model", "m.gguf" },
	  .libs = { SITE "/llama_cpp/lib/libllama.so" }, .symbols = { "llama_decode" },
	  .ports = { 8000 }, .engine = TL_ENGINE_LLAMA, .role = "server", .version = "",
	  .why = "command 'llama_cpp.server'", .tiers = TL_T0 | TL_T1 },
	{ .name = "embedded, its sockets unknown", .comm = "python", .exe = PYTHON,
	  .cmdline = { "python", "serve.py" }, .libs = { SITE "/xllamacpp/xllamacpp.abi3.so" },
	  .symbols = { "llama_process" }, .ports_unknown = true, .engine = TL_ENGINE_LLAMA,
	  .role = "server", .version = "", .why = "llama_process in xllamacpp.abi3.so",
	  .tiers = TL_T0 | TL_T1 },
	{ .name = "a build whose step function has another name", .comm = "llama-server",
	  .exe = "/app/llama-server", .cmdline = { "/app/llama-server" },
	  .libs = { "/app/libllama.so" }, .symbols = { "llama_backend_init" }, .ports = { 8080 },
	  .engine = TL_ENGINE_LLAMA, .role = "server", .version = "",
	  .why = "command 'llama-server'", .tiers = TL_T0 },
	{ .name = "package in a folder that others do not share", .comm = "llama-server",
	  .exe = "/x/pkg/bin/llama-server", .cmdline = { "/x/pkg/bin/llama-server" },
	  .libs = { "/x/pkg/bin/libllama.so.0" }, .symbols = { "llama_decode" },
	  .packages = { "pkg 0.10434.0" }, .engine = TL_ENGINE_LLAMA, .role = "server",
	  .version = "pkg 0.10434.0", .why = "command 'llama-server'", .tiers = TL_T0 | TL_T1 },

	/* ---- Ollama ---- */
	{ .name = "ollama serve", .comm = "ollama", .exe = "/usr/local/bin/ollama",
	  .cmdline = { "/usr/local/bin/ollama", "serve" }, .libs = { "/usr/local/bin/ollama" },
	  .ports = { 11434 }, .engine = TL_ENGINE_OLLAMA, .role = "front", .version = "",
	  .why = "command 'ollama serve'", .tiers = TL_T0 },
	{ .name = "Ollama 0.30's runner", .comm = "llama-server",
	  .exe = "/usr/local/lib/ollama/llama-server",
	  .cmdline = { "/usr/local/lib/ollama/llama-server", "--port", "40321" },
	  .libs = { "/usr/local/lib/ollama/libllama.so.0" }, .symbols = { "llama_decode" },
	  .ports = { 40321 }, .llama_build = 10488, .engine = TL_ENGINE_LLAMA, .role = "server",
	  .version = "b10488", .why = "command 'llama-server'", .tiers = TL_T0 | TL_T1 },
	{ .name = "older Ollama's runner", .comm = "ollama", .exe = "/usr/local/bin/ollama",
	  .cmdline = { "/usr/local/bin/ollama", "runner", "--model", "/m", "--port", "40321" },
	  .libs = { "/usr/local/bin/ollama" }, .ports = { 40321 }, .engine = TL_ENGINE_LLAMA,
	  .role = "runner", .version = "",
	  .why = "command 'ollama runner' (before 0.30), stripped: no llama_* symbols",
	  .tiers = TL_T0 },
	{ .name = "older Ollama's own engine", .comm = "ollama", .exe = "/usr/local/bin/ollama",
	  .cmdline = { "/usr/local/bin/ollama", "runner", "--ollama-engine", "--port", "40321" },
	  .libs = { "/usr/local/bin/ollama" }, .ports = { 40321 }, .engine = TL_ENGINE_OLLAMA,
	  .role = "runner", .version = "",
	  .why = "command 'ollama runner --ollama-engine': Ollama's own engine", .tiers = TL_T0 },
	{ .name = "ollama run is a client", .comm = "ollama", .exe = "/usr/local/bin/ollama",
	  .cmdline = { "ollama", "run", "llama3" }, .libs = { "/usr/local/bin/ollama" } },

	/* ---- vLLM ---- */
	{ .name = "vllm serve", .comm = "vllm", .exe = PYTHON,
	  .cmdline = { "/opt/venv/bin/python", "/opt/venv/bin/vllm", "serve", "Qwen/Qwen3-8B" },
	  .libs = { SITE "/torch/lib/libtorch_cpu.so", SITE "/vllm/_C.abi3.so" },
	  .packages = { "sglang 0.5.16", "vllm 0.32.0" }, .ports = { 8000 },
	  .engine = TL_ENGINE_VLLM, .role = "api", .version = "0.32.0",
	  .why = "command 'vllm serve'", .tiers = TL_T0 },
	{ .name = "vllm's module", .comm = "python3", .exe = PYTHON,
	  .cmdline = { "python3", "-u", "-X", "dev", "-m", "vllm.entrypoints.openai.api_server" },
	  .ports = { 8000 }, .engine = TL_ENGINE_VLLM, .role = "api", .version = "",
	  .why = "command 'vllm.entrypoints.openai.api_server'", .tiers = TL_T0 },
	{ .name = "EngineCore", .comm = "VLLM::EngineCor", .exe = PYTHON,
	  .cmdline = { "VLLM::EngineCore_DP1", "", "" }, .libs = { SITE "/vllm/_C.abi3.so" },
	  .packages = { "vllm 0.32.0" }, .engine = TL_ENGINE_VLLM, .role = "engine-core",
	  .version = "0.32.0", .why = "title VLLM::EngineCore_DP1", .tiers = TL_T0 },
	{ .name = "worker, command line hidden", .comm = "VLLM::Worker_TP", .exe = "",
	  .engine = TL_ENGINE_VLLM, .role = "worker", .version = "", .why = "title VLLM::Worker_TP",
	  .tiers = TL_T0 },
	{ .name = "one of several API servers", .comm = "VLLM::APIServer", .exe = PYTHON,
	  .cmdline = { "VLLM::APIServer_1" }, .ports = { 8000 }, .engine = TL_ENGINE_VLLM,
	  .role = "api", .version = "", .why = "title VLLM::APIServer_1", .tiers = TL_T0 },
	{ .name = "coordinator", .comm = "VLLM::DPCoordin", .exe = PYTHON,
	  .cmdline = { "VLLM::DPCoordinator" }, .engine = TL_ENGINE_VLLM, .role = "coordinator",
	  .version = "", .why = "title VLLM::DPCoordinator", .tiers = TL_T0 },
	{ .name = "Rust front end", .comm = "vllm-rs", .exe = SITE "/vllm/vllm-rs",
	  .cmdline = { "vllm-rs", "frontend", "--listen-fd", "7" }, .ports = { 8000 },
	  .engine = TL_ENGINE_VLLM, .role = "front", .version = "", .why = "command 'vllm-rs'",
	  .tiers = TL_T0 },
	{ .name = "offline use of vllm", .comm = "python", .exe = PYTHON,
	  .cmdline = { "python", "eval.py" }, .libs = { SITE "/vllm/_C.abi3.so" },
	  .packages = { "vllm 0.32.0" }, .engine = TL_ENGINE_VLLM, .role = "library",
	  .version = "0.32.0", .why = "maps _C.abi3.so", .tiers = TL_T0 },
	{ .name = "vllm's child without setproctitle", .comm = "python", .exe = PYTHON,
	  .cmdline = { "python", "-c", "from multiprocessing.spawn", "--multiprocessing-fork" },
	  .libs = { SITE "/vllm/_C.abi3.so" }, .ports = { 29500 }, .engine = TL_ENGINE_VLLM,
	  .role = "worker", .version = "", .why = "maps _C.abi3.so", .tiers = TL_T0 },
	{ .name = "vllm bench is a client", .comm = "vllm", .exe = PYTHON,
	  .cmdline = { "python", "/opt/venv/bin/vllm", "bench", "serve" },
	  .packages = { "vllm 0.32.0" } },

	/* ---- SGLang ---- */
	{ .name = "sglang's parent", .comm = "python", .exe = PYTHON,
	  .cmdline = { "sg/bin/python", "-m", "sglang.launch_server", "--model-path", "tiny" },
	  .packages = { "sglang 0.5.16" }, .ports = { 30000 }, .engine = TL_ENGINE_SGLANG,
	  .role = "api", .version = "0.5.16", .why = "command 'sglang.launch_server'",
	  .tiers = TL_T0 },
	{ .name = "scheduler", .comm = "sglang::schedul", .exe = PYTHON,
	  .cmdline = { "sglang::scheduler_TP0" }, .engine = TL_ENGINE_SGLANG, .role = "scheduler",
	  .version = "", .why = "title sglang::scheduler_TP0", .tiers = TL_T0 },
	{ .name = "detokenizer", .comm = "sglang::detoken", .exe = PYTHON,
	  .cmdline = { "sglang::detokenizer" }, .engine = TL_ENGINE_SGLANG, .role = "detokenizer",
	  .version = "", .why = "title sglang::detokenizer", .tiers = TL_T0 },
	{ .name = "HTTP worker", .comm = "sglang::tokeniz", .exe = PYTHON,
	  .cmdline = { "sglang::tokenizer_worker:77" }, .ports = { 30000 },
	  .engine = TL_ENGINE_SGLANG, .role = "api", .version = "",
	  .why = "title sglang::tokenizer_worker:77", .tiers = TL_T0 },
	{ .name = "a title of the future", .comm = "sglang::new_thi", .exe = PYTHON,
	  .cmdline = { "sglang::new_thing" }, .engine = TL_ENGINE_SGLANG, .role = "helper",
	  .version = "", .why = "title sglang::new_thing", .tiers = TL_T0 },

	/* ---- others ---- */
	{ .name = "TGI's launcher", .comm = "text-generation",
	  .exe = "/usr/local/bin/text-generation-launcher",
	  .cmdline = { "text-generation-launcher", "--model-id", "m" }, .engine = TL_ENGINE_TGI,
	  .role = "launcher", .version = "", .why = "command 'text-generation-launcher'",
	  .tiers = TL_T0 },
	{ .name = "TGI's router", .comm = "text-generation",
	  .exe = "/usr/local/bin/text-generation-router", .cmdline = { "text-generation-router" },
	  .ports = { 80 }, .engine = TL_ENGINE_TGI, .role = "front", .version = "",
	  .why = "command 'text-generation-router'", .tiers = TL_T0 },
	{ .name = "TGI's shard", .comm = "text-generation", .exe = PYTHON,
	  .cmdline = { "/usr/bin/python", "/usr/bin/text-generation-server", "serve", "m" },
	  .packages = { "text_generation_server 3.3.7" }, .engine = TL_ENGINE_TGI, .role = "worker",
	  .version = "3.3.7", .why = "command 'text-generation-server serve'", .tiers = TL_T0 },
	{ .name = "trtllm-serve", .comm = "trtllm-serve", .exe = PYTHON,
	  .cmdline = { "/usr/bin/python3", "/usr/local/bin/trtllm-serve", "m" },
	  .packages = { "tensorrt_llm 1.2.0" }, .ports = { 8000 }, .engine = TL_ENGINE_TRTLLM,
	  .role = "api", .version = "1.2.0", .why = "command 'trtllm-serve'", .tiers = TL_T0 },
	{ .name = "its MPI worker", .comm = "python3", .exe = PYTHON,
	  .cmdline = { "/usr/bin/python3", "-m", "mpi4py.futures.server" },
	  .libs = { SITE "/tensorrt_llm/libs/libtensorrt_llm.so" }, .engine = TL_ENGINE_TRTLLM,
	  .role = "worker", .version = "", .why = "maps libtensorrt_llm.so", .tiers = TL_T0 },
	{ .name = "Triton with TensorRT-LLM", .comm = "tritonserver",
	  .exe = "/opt/tritonserver/bin/tritonserver",
	  .cmdline = { "tritonserver", "--model-repository=/m" },
	  .libs = { "/opt/trt/libtensorrt_llm.so" }, .ports = { 8000, 8001 },
	  .engine = TL_ENGINE_TRTLLM, .role = "server", .version = "",
	  .why = "maps libtensorrt_llm.so", .tiers = TL_T0 },

	/* ---- not engines ---- */
	{ .name = "sudo vllm serve", .comm = "sudo", .exe = "/usr/bin/sudo",
	  .cmdline = { "sudo", "vllm", "serve", "m" } },
	{ .name = "docker run ... vllm serve", .comm = "docker", .exe = "/usr/bin/docker",
	  .cmdline = { "docker", "run", "img", "vllm", "serve", "m" } },
	{ .name = "sh -c 'llama-server ...'", .comm = "sh", .exe = "/usr/bin/dash",
	  .cmdline = { "sh", "-c", "llama-server -m m.gguf" } },
	{ .name = "an editor", .comm = "vim", .exe = "/usr/bin/vim",
	  .cmdline = { "vim", "llama-server" } },
	{ .name = "python -c, with a name behind it", .comm = "python3", .exe = PYTHON,
	  .cmdline = { "python3", "-c", "pass", "vllm", "serve" } },
	{ .name = "python alone", .comm = "python3", .exe = PYTHON, .cmdline = { "python3" } },
	{ .name = "python -m, cut", .comm = "python3", .exe = PYTHON,
	  .cmdline = { "python3", "-m" } },
	{ .name = "python -X, cut", .comm = "python3", .exe = PYTHON,
	  .cmdline = { "python3", "-X" } },
	{ .name = "python in vllm's environment", .comm = "python", .exe = PYTHON,
	  .cmdline = { "python", "proxy.py" }, .libs = { SITE "/numpy/core.so" },
	  .packages = { "vllm 0.32.0" }, .ports = { 8000 } },
	{ .name = "ggml without llama.cpp", .comm = "whisper-server", .exe = "/app/whisper-server",
	  .cmdline = { "/app/whisper-server" }, .libs = { "/app/libggml-base.so" },
	  .ports = { 8080 } },
	{ .name = "a kernel thread with a name", .comm = "VLLM::Worker", .exe = "",
	  .kernel_thread = true },
	{ .name = "nothing known", .comm = "", .exe = "" },
};

static size_t count(const char *const *strings, size_t max)
{
	size_t n = 0;

	while (n < max && strings[n])
		n++;
	return n;
}

/* cmdline is what the kernel gives: each argument with its NUL. */
static void fill(struct proc_facts *f, const struct engine_case *c, char *cmdline)
{
	memset(f, 0, sizeof(*f));
	f->kernel_thread = c->kernel_thread;
	f->llama_build = c->llama_build;
	f->ports_unknown = c->ports_unknown;
	strncpy(f->comm, c->comm, sizeof(f->comm) - 1);
	strncpy(f->exe, c->exe, sizeof(f->exe) - 1);
	for (size_t i = 0; i < count(c->cmdline, 8); i++) {
		strcpy(cmdline + f->cmdline_len, c->cmdline[i]);
		f->cmdline_len += strlen(c->cmdline[i]) + 1;
	}
	cmdline[f->cmdline_len] = 0;
	f->cmdline = cmdline;
	f->libs = (char **)c->libs;
	f->n_libs = count(c->libs, 3);
	f->n_symbols = count(c->symbols, 3);
	memcpy(f->symbols, c->symbols, f->n_symbols * sizeof(f->symbols[0]));
	f->symbols_in = f->n_symbols ? c->libs[0] : NULL;
	f->packages = (char **)c->packages;
	f->n_packages = count(c->packages, 3);
	while (f->n_ports < 2 && c->ports[f->n_ports]) {
		f->ports[f->n_ports] = c->ports[f->n_ports];
		f->n_ports++;
	}
}

static void test_recognise__cases(void **state)
{
	char cmdline[512];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct engine_case *c = &cases[i];
		struct engine_id id = { .engine = 99 };
		struct proc_facts f;

		print_message("# %s\n", c->name);
		fill(&f, c, cmdline);
		assert_int_equal(recognise(&f, &id), c->engine != TL_ENGINE_UNKNOWN);
		if (!c->engine) {
			assert_int_equal(id.engine, 99);
			continue;
		}
		assert_int_equal(id.engine, c->engine);
		assert_string_equal(id.role, c->role);
		assert_string_equal(id.version, c->version);
		assert_string_equal(id.why, c->why);
		assert_int_equal(recognise_tiers(&f, &id), c->tiers);
	}
}

/* What a stranger chose to be called must not reach a terminal as it is. */
static void test_recognise__cleans_words(void **state)
{
	static const struct engine_case c = {
		.comm = "VLLM::\033[2J", .exe = "", .cmdline = { "VLLM::\033[2J\n" },
	};
	struct proc_facts f;
	struct engine_id id;
	char cmdline[64];

	(void)state;
	fill(&f, &c, cmdline);
	assert_true(recognise(&f, &id));
	assert_string_equal(id.why, "title VLLM::?[2J?");
}

/* Arguments longer than any field of the answer. */
static void test_recognise__cuts_words(void **state)
{
	static char cmdline[5000], lib[5000] = "/a/";
	char *libs[] = { lib };
	struct proc_facts f = {
		.cmdline = cmdline, .cmdline_len = 4000, .libs = libs, .n_libs = 1,
	};
	struct engine_id id;

	(void)state;
	memset(cmdline, 'x', 4000);
	memcpy(cmdline, "VLLM::", 6);
	assert_true(recognise(&f, &id));
	assert_int_equal(strlen(id.why), 66);
	memset(cmdline, 'y', 4000);
	memset(lib + 3, 'z', 4000);
	f.symbols[0] = "llama_decode";
	f.n_symbols = 1;
	f.symbols_in = lib;
	assert_true(recognise(&f, &id));
	assert_true(strlen(id.why) < sizeof(id.why));
}

static void test_recognise__servers(void **state)
{
	(void)state;
	assert_true(recognise_same_server(TL_ENGINE_LLAMA, TL_ENGINE_OLLAMA));
	assert_true(recognise_same_server(TL_ENGINE_VLLM, TL_ENGINE_VLLM));
	assert_false(recognise_same_server(TL_ENGINE_OLLAMA, TL_ENGINE_LLAMA));
	assert_false(recognise_same_server(TL_ENGINE_VLLM, TL_ENGINE_LLAMA));
}

static void test_recognise__io_uring(void **state)
{
	char *libs[] = { "/usr/lib/libc.so.6", SITE "/uvloop/loop.cpython-312.so" };
	struct proc_facts f = { .libs = libs, .n_libs = 1 };

	(void)state;
	assert_false(recognise_hides_traffic(&f));
	f.uses_io_uring = true;
	assert_true(recognise_hides_traffic(&f));
	f.n_libs = 2;
	assert_false(recognise_hides_traffic(&f));
}

#define ID64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static const struct {
	const char *cgroup, *want;
} container_cases[] = {
	{ "/system.slice/docker-" ID64 ".scope", "docker 0123456789ab" },
	{ "/docker/" ID64, "docker 0123456789ab" },
	{ "/machine.slice/libpod-" ID64 ".scope/container", "podman 0123456789ab" },
	{ "/kubepods.slice/kubepods-burstable-pod1.slice/cri-containerd-" ID64 ".scope",
	  "containerd 0123456789ab" },
	{ "/kubepods/besteffort/pod0d1e/" ID64, "kubernetes 0123456789ab" },
	{ "le.slice/what-" ID64 ".scope", "container 0123456789ab" },	/* its front was cut off */
	{ "/system.slice/ollama.service", "ollama.service" },
	{ "/user.slice/user-0.slice/session-1.scope", "" },
	{ "/", "" },
	{ "", "" },
	{ "/docker/0123456789abcdef", "" },
};

static void test_recognise__containers(void **state)
{
	char got[48];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(container_cases); i++) {
		recognise_container(container_cases[i].cgroup, got, sizeof(got));
		assert_string_equal(got, container_cases[i].want);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_recognise__cases),
		cmocka_unit_test(test_recognise__cleans_words),
		cmocka_unit_test(test_recognise__cuts_words),
		cmocka_unit_test(test_recognise__servers),
		cmocka_unit_test(test_recognise__io_uring),
		cmocka_unit_test(test_recognise__containers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
