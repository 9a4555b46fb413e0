/* SPDX-License-Identifier: Apache-2.0 */
/* Rules that tell an engine from what a process shows of itself: title, command, mapped files. */
#include "engine/recognise.h"

#include "base/str.h"
#include "base/util.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* The first N_STEP are the functions that compute one step; the others show that it is llama.cpp
 * all the same. */
enum { N_STEP = 2 };
const char *const recognise_symbols[] = {
	"llama_process",
	"llama_decode",
	"llama_batch_ext_add_token",
	"llama_backend_init",
	"llama_model_load_from_file",
	"llama_load_model_from_file",	/* until 2025 */
};
const size_t n_recognise_symbols = ARRAY_SIZE(recognise_symbols);

/* Lower case, '_' for '-'. */
const char *const recognise_packages[] = {
	"xllamacpp", "llama_cpp_python", "vllm", "sglang", "text_generation_server", "tensorrt_llm",
};
const size_t n_recognise_packages = ARRAY_SIZE(recognise_packages);

/* Packages whose version is the engine's own; the name of an engine's package is enough. */
static const struct {
	const char *package;
	uint16_t engine;
} packages[] = {
	{ "vllm", TL_ENGINE_VLLM },
	{ "sglang", TL_ENGINE_SGLANG },
	{ "text_generation_server", TL_ENGINE_TGI },
	{ "tensorrt_llm", TL_ENGINE_TRTLLM },
};

/* Processes that name themselves (setproctitle): a prefix of argv[0], of which comm has 15 bytes.
 * The first that fits counts. */
static const struct {
	const char *prefix;
	uint16_t engine;
	const char *role;
} titles[] = {
	{ "VLLM::EngineCore", TL_ENGINE_VLLM, "engine-core" },
	{ "VLLM::Worker", TL_ENGINE_VLLM, "worker" },
	{ "VLLM::APIServer", TL_ENGINE_VLLM, "api" },
	{ "VLLM::ApiServer", TL_ENGINE_VLLM, "api" },
	{ "VLLM::DPCoordinator", TL_ENGINE_VLLM, "coordinator" },
	{ "VLLM::", TL_ENGINE_VLLM, "helper" },
	{ "sglang::scheduler", TL_ENGINE_SGLANG, "scheduler" },
	{ "sglang::detokenizer", TL_ENGINE_SGLANG, "detokenizer" },
	{ "sglang::tokenizer_worker", TL_ENGINE_SGLANG, "api" },
	{ "sglang::data_parallel_controller", TL_ENGINE_SGLANG, "coordinator" },
	{ "sglang::gpu_worker", TL_ENGINE_SGLANG, "worker" },
	{ "sglang::", TL_ENGINE_SGLANG, "helper" },
};

/* Programs, Python scripts and Python modules (`python -m X`), and the word that must follow. */
static const struct {
	const char *program, *word;
	uint16_t engine;
	const char *role;
} commands[] = {
	{ "llama-server", NULL, TL_ENGINE_LLAMA, "server" },
	{ "llama_cpp.server", NULL, TL_ENGINE_LLAMA, "server" },
	{ "ollama_llama_server", NULL, TL_ENGINE_LLAMA, "server" },	/* Ollama before 0.4 */
	{ "ollama", "serve", TL_ENGINE_OLLAMA, "front" },
	{ "ollama", "start", TL_ENGINE_OLLAMA, "front" },
	{ "ollama", "runner", TL_ENGINE_LLAMA, "runner" },		/* Ollama 0.4 to 0.29 */
	{ "vllm", "serve", TL_ENGINE_VLLM, "api" },
	{ "vllm.entrypoints.cli.main", "serve", TL_ENGINE_VLLM, "api" },
	{ "vllm.entrypoints.openai.api_server", NULL, TL_ENGINE_VLLM, "api" },
	{ "vllm.entrypoints.api_server", NULL, TL_ENGINE_VLLM, "api" },
	{ "vllm-rs", NULL, TL_ENGINE_VLLM, "front" },
	{ "sglang", "serve", TL_ENGINE_SGLANG, "api" },
	{ "sglang.launch_server", NULL, TL_ENGINE_SGLANG, "api" },
	{ "sglang_router.launch_router", NULL, TL_ENGINE_SGLANG, "front" },
	{ "sglang-router", NULL, TL_ENGINE_SGLANG, "front" },
	{ "text-generation-launcher", NULL, TL_ENGINE_TGI, "launcher" },
	{ "text-generation-router", NULL, TL_ENGINE_TGI, "front" },
	{ "text-generation-server", "serve", TL_ENGINE_TGI, "worker" },
	{ "trtllm-serve", NULL, TL_ENGINE_TRTLLM, "api" },
	{ "trtllm-llmapi-launch", NULL, TL_ENGINE_TRTLLM, "launcher" },
};

/* Libraries that only one engine has: part of a mapped path. */
static const struct {
	const char *part;
	uint16_t engine;
} libraries[] = {
	{ "/libllama.so", TL_ENGINE_LLAMA },
	{ "/vllm/_C", TL_ENGINE_VLLM },
	{ "/vllm/_moe_C", TL_ENGINE_VLLM },
	{ "/sgl_kernel/", TL_ENGINE_SGLANG },
	{ "/libtensorrt_llm.so", TL_ENGINE_TRTLLM },
};

static const char *base(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static bool starts_with(const char *s, const char *prefix)
{
	return !strncmp(s, prefix, strlen(prefix));
}

/* ---- command lines ---- */

static const char *next_arg(const struct proc_facts *f, const char *arg)
{
	const char *end = f->cmdline + f->cmdline_len;

	arg += strnlen(arg, end - arg) + 1;
	return arg < end ? arg : NULL;
}

static const char *first_arg(const struct proc_facts *f)
{
	return f->cmdline && f->cmdline_len && *f->cmdline ? f->cmdline : NULL;
}

/* What runs: the program, or the script or module that Python runs. Wrappers (sudo, docker run, sh
 * -c) are themselves. Returns its name, sets *ret_next to the argument behind it or NULL. */
static const char *find_program(const struct proc_facts *f, const char **ret_next)
{
	const char *arg = first_arg(f), *name;

	*ret_next = NULL;
	if (!arg)
		return base(f->exe);
	*ret_next = next_arg(f, arg);
	name = base(f->exe);
	if (!starts_with(name, "python") && !starts_with(base(arg), "python"))
		return *name ? name : base(arg);
	for (arg = *ret_next; arg; arg = next_arg(f, arg)) {
		if (arg[0] != '-')
			name = base(arg);
		else if (!strcmp(arg, "-m"))
			name = arg = next_arg(f, arg);
		else if ((!strcmp(arg, "-X") || !strcmp(arg, "-W")) && (arg = next_arg(f, arg)))
			continue;
		else if (arg && strcmp(arg, "-c"))
			continue;
		else
			break;		/* a program in the command line itself */
		*ret_next = arg ? next_arg(f, arg) : NULL;
		return name;
	}
	return NULL;
}

static bool has_arg(const struct proc_facts *f, const char *want)
{
	for (const char *arg = first_arg(f); arg; arg = next_arg(f, arg)) {
		if (!strcmp(arg, want))
			return true;
	}
	return false;
}

/* ---- the rules ---- */

static bool is_titled(const struct proc_facts *f, const char *prefix)
{
	const char *arg = first_arg(f);
	size_t n = strnlen(prefix, sizeof(f->comm) - 1);

	return (arg && starts_with(arg, prefix)) || !strncmp(f->comm, prefix, n);
}

static bool by_title(const struct proc_facts *f, struct engine_id *id)
{
	const char *arg = first_arg(f);

	for (size_t i = 0; i < ARRAY_SIZE(titles); i++) {
		if (!is_titled(f, titles[i].prefix))
			continue;
		id->engine = titles[i].engine;
		str_copy(id->role, sizeof(id->role), titles[i].role);
		snprintf(id->why, sizeof(id->why), "title %.60s",
			 arg && starts_with(arg, titles[i].prefix) ? arg : f->comm);
		return true;
	}
	return false;
}

/* Ollama 0.4 to 0.29 has a second engine, which is no llama.cpp, in the same program. */
static void check_ollama_runner(const struct proc_facts *f, struct engine_id *id)
{
	if (has_arg(f, "--ollama-engine")) {
		id->engine = TL_ENGINE_OLLAMA;
		str_copy(id->why, sizeof(id->why),
			 "command 'ollama runner --ollama-engine': Ollama's own engine");
	} else if (!f->n_symbols) {
		str_copy(id->why, sizeof(id->why),
			 "command 'ollama runner' (before 0.30), stripped: no llama_* symbols");
	}
}

static bool by_command(const struct proc_facts *f, struct engine_id *id)
{
	const char *next, *program = find_program(f, &next);

	for (size_t i = 0; program && i < ARRAY_SIZE(commands); i++) {
		const char *word = commands[i].word;

		if (strcmp(program, commands[i].program) || (word && (!next || strcmp(next, word))))
			continue;
		id->engine = commands[i].engine;
		str_copy(id->role, sizeof(id->role), commands[i].role);
		snprintf(id->why, sizeof(id->why), "command '%s%s%s'", commands[i].program,
			 word ? " " : "", word ? word : "");
		if (!strcmp(id->role, "runner"))
			check_ollama_runner(f, id);
		else if (id->engine == TL_ENGINE_LLAMA && !f->n_symbols && f->n_libs)
			snprintf(id->why, sizeof(id->why),
				 "command '%s', stripped: no llama_* symbols", commands[i].program);
		return true;
	}
	return false;
}

/* A program that embeds an engine: what it is to others shows in its sockets only. */
static void role_of_embedder(const struct proc_facts *f, struct engine_id *id)
{
	if (has_arg(f, "--multiprocessing-fork") || has_arg(f, "mpi4py.futures.server"))
		str_copy(id->role, sizeof(id->role), "worker");
	else
		str_copy(id->role, sizeof(id->role),
			 f->n_ports || f->ports_unknown ? "server" : "library");
}

static bool by_symbols(const struct proc_facts *f, struct engine_id *id)
{
	if (!f->n_symbols)
		return false;
	id->engine = TL_ENGINE_LLAMA;
	role_of_embedder(f, id);
	snprintf(id->why, sizeof(id->why), "%s in %.48s", f->symbols[0],
		 f->symbols_in ? base(f->symbols_in) : "?");
	return true;
}

static bool by_libraries(const struct proc_facts *f, struct engine_id *id)
{
	for (size_t i = 0; i < f->n_libs; i++) {
		for (size_t k = 0; k < ARRAY_SIZE(libraries); k++) {
			if (!strstr(f->libs[i], libraries[k].part))
				continue;
			id->engine = libraries[k].engine;
			role_of_embedder(f, id);
			snprintf(id->why, sizeof(id->why), "maps %.80s", base(f->libs[i]));
			return true;
		}
	}
	return false;
}

/* ---- versions ---- */

/* llama.cpp comes in packages of others, which have versions of their own: say whose it is. */
static bool has_llama(const struct proc_facts *f, const char *package, size_t len)
{
	char folder[64];

	snprintf(folder, sizeof(folder), "/%.*s/", (int)len, package);
	if (!strcmp(folder, "/llama_cpp_python/"))
		str_copy(folder, sizeof(folder), "/llama_cpp/");
	return f->symbols_in && strstr(f->symbols_in, folder);
}

static void find_version(const struct proc_facts *f, struct engine_id *id)
{
	if (id->engine == TL_ENGINE_LLAMA && f->llama_build) {
		snprintf(id->version, sizeof(id->version), "b%u", f->llama_build);
		return;
	}
	for (size_t i = 0; i < f->n_packages && !*id->version; i++) {
		const char *package = f->packages[i];
		size_t len = strcspn(package, " ");

		if (id->engine == TL_ENGINE_LLAMA && has_llama(f, package, len))
			str_copy(id->version, sizeof(id->version), package);
		for (size_t k = 0; k < ARRAY_SIZE(packages); k++) {
			if (packages[k].engine == id->engine &&
			    strlen(packages[k].package) == len &&
			    !strncmp(packages[k].package, package, len) && package[len])
				str_copy(id->version, sizeof(id->version), package + len + 1);
		}
	}
}

bool recognise(const struct proc_facts *f, struct engine_id *ret)
{
	struct engine_id id = { 0 };

	if (f->kernel_thread)
		return false;
	if (!by_title(f, &id) && !by_command(f, &id) && !by_libraries(f, &id) &&
	    !by_symbols(f, &id))
		return false;
	find_version(f, &id);
	/* parts of them are a stranger's words, and end on a terminal */
	*ret = id;
	str_copy_clean(ret->version, sizeof(ret->version), id.version, strlen(id.version));
	str_copy_clean(ret->why, sizeof(ret->why), id.why, strlen(id.why));
	return true;
}

const char *engine_kind_name(uint16_t engine)
{
	switch (engine) {
	case TL_ENGINE_LLAMA: return "llama.cpp";
	case TL_ENGINE_OLLAMA: return "ollama";
	case TL_ENGINE_VLLM: return "vllm";
	case TL_ENGINE_SGLANG: return "sglang";
	case TL_ENGINE_TGI: return "tgi";
	case TL_ENGINE_TRTLLM: return "tensorrt-llm";
	}
	return "unknown";
}

bool recognise_is_step(const char *symbol)
{
	for (size_t i = 0; i < N_STEP; i++) {
		if (!strcmp(symbol, recognise_symbols[i]))
			return true;
	}
	return false;
}

uint32_t recognise_tiers(const struct proc_facts *f, const struct engine_id *id)
{
	for (size_t i = 0; i < f->n_symbols && id->engine == TL_ENGINE_LLAMA; i++) {
		if (recognise_is_step(f->symbols[i]))
			return TL_T0 | TL_T1;
	}
	return TL_T0;
}

bool recognise_hides_traffic(const struct proc_facts *f)
{
	for (size_t i = 0; i < f->n_libs; i++) {
		if (strstr(f->libs[i], "/uvloop/"))
			return false;
	}
	return f->uses_io_uring;
}

bool recognise_same_server(uint16_t child, uint16_t parent)
{
	return child == parent || (child == TL_ENGINE_LLAMA && parent == TL_ENGINE_OLLAMA);
}

/* ---- containers ---- */

/* Length of the run of hexadecimal digits. */
static size_t hex_len(const char *s)
{
	size_t n = 0;

	while (isxdigit((unsigned char)s[n]))
		n++;
	return n;
}

void recognise_container(const char *cgroup, char *ret, size_t size)
{
	static const struct {
		const char *part, *name;
	} runtimes[] = {
		{ "docker", "docker" }, { "libpod", "podman" }, { "cri-containerd", "containerd" },
		{ "crio", "cri-o" }, { "kubepods", "kubernetes" }, { "containerd", "containerd" },
	};
	const char *name = NULL, *last = strrchr(cgroup, '/');

	str_copy(ret, size, "");
	for (size_t i = 0; i < ARRAY_SIZE(runtimes) && !name; i++)
		name = strstr(cgroup, runtimes[i].part) ? runtimes[i].name : NULL;
	for (const char *p = cgroup; *p; p += hex_len(p) ? hex_len(p) : 1) {
		if (hex_len(p) == 64) {
			snprintf(ret, size, "%s %.12s", name ? name : "container", p);
			return;
		}
	}
	if (last && strstr(last, ".service"))
		str_copy_clean(ret, size, last + 1, strlen(last + 1));
}
