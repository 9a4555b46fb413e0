/* SPDX-License-Identifier: Apache-2.0 */
/* Evidence from the host: roles of threads, kinds of code, quotas; and what is made of spans. */
#include "unit.h"

#include "source/cgroup_text.h"
#include "source/code_rules.h"
#include "source/elf_ranges.h"
#include "source/host.h"
#include "source/host_roles.h"
#include "../../bpf/watch.h"
#include "tl_event.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>

enum { MS = 1000000 };

/* ---- roles ---- */

static const struct {
	const char *name;
	struct thread_facts f;
	uint16_t role;
} threads[] = {
	{ "vLLM's API server", { TL_ENGINE_VLLM, "api", "vllm", .is_main = true }, TL_ROLE_FRONT },
	{ "another of its threads", { TL_ENGINE_VLLM, "api", "vllm", .spoke_http = true }, TL_ROLE_OTHER },
	{ "one of its front end in Rust", { TL_ENGINE_VLLM, "front", "tokio-rt-worker",
	  .spoke_http = true }, TL_ROLE_FRONT },
	{ "another of that", { TL_ENGINE_VLLM, "front", "vllm-request", .is_main = false },
	  TL_ROLE_OTHER },
	{ "busy ones of it do not compute", { TL_ENGINE_VLLM, "api", "vllm", .cpu_ns = 900 * MS,
	  .engine_cpu_ns = 1000 * MS, .wall_ns = 1000 * MS }, TL_ROLE_OTHER },
	{ "its engine", { TL_ENGINE_VLLM, "engine-core", "VLLM::EngineCor", .is_main = true }, TL_ROLE_ENGINE },
	{ "OpenMP", { TL_ENGINE_VLLM, "engine-core", "VLLM::EngineCor", .cpu_ns = 400 * MS,
	  .engine_cpu_ns = 1000 * MS, .wall_ns = 1000 * MS }, TL_ROLE_COMPUTE },
	{ "one that keeps Python's lock", { TL_ENGINE_VLLM, "engine-core", "worker", .interprets = true,
	  .cpu_ns = 400 * MS, .engine_cpu_ns = 1000 * MS, .wall_ns = 1000 * MS }, TL_ROLE_OTHER },
	{ "a thread that helps now and then", { TL_ENGINE_VLLM, "engine-core", "pt_autograd_0", .cpu_ns = 40 * MS,
	  .engine_cpu_ns = 100 * MS, .wall_ns = 1000 * MS }, TL_ROLE_OTHER },
	{ "nobody runs steps", { TL_ENGINE_VLLM, "engine-core", "x", .cpu_ns = 900 * MS, .wall_ns = 1000 * MS },
	  TL_ROLE_OTHER },
	{ "ZeroMQ", { TL_ENGINE_VLLM, "api", "ZMQbg/IO/0", .spoke_http = true }, TL_ROLE_ZMQ },
	{ "a worker", { TL_ENGINE_VLLM, "worker", "VLLM::Worker_TP", .is_main = true }, TL_ROLE_LAUNCH },
	{ "SGLang's detokenizer", { TL_ENGINE_SGLANG, "detokenizer", "sglang::detoken", .is_main = true },
	  TL_ROLE_DETOKENIZER },
	{ "SGLang's scheduler", { TL_ENGINE_SGLANG, "scheduler", "sglang::schedul", .is_main = true }, TL_ROLE_ENGINE },
	{ "llama.cpp's steps", { TL_ENGINE_LLAMA, "server", "python", .ran_step = true, .spoke_http = true },
	  TL_ROLE_ENGINE },
	{ "its HTTP", { TL_ENGINE_LLAMA, "server", "python", .spoke_http = true }, TL_ROLE_FRONT },
	{ "its pool", { TL_ENGINE_LLAMA, "server", "python", .cpu_ns = 990 * MS, .engine_cpu_ns = 1000 * MS,
	  .wall_ns = 1000 * MS }, TL_ROLE_COMPUTE },
	{ "a stranger that speaks HTTP", { TL_ENGINE_UNKNOWN, "", "nginx", .spoke_http = true }, TL_ROLE_FRONT },
	{ "a stranger", { TL_ENGINE_UNKNOWN, "", "x", .is_main = true }, TL_ROLE_OTHER },
};

static void test_roles__by_what_was_seen(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		if (thread_role(&threads[i].f) != threads[i].role)
			fail_msg("%s: %u", threads[i].name, thread_role(&threads[i].f));
}

static void test_watch__only_what_tells_something(void **state)
{
	uint32_t front = thread_watch(TL_ENGINE_VLLM, "api", TL_ROLE_FRONT);

	(void)state;
	assert_true(front & WATCH_RUN && front & WATCH_CODE && front & 1u << TL_WAIT_FUTEX);
	assert_false(front & 1u << TL_WAIT_POLL);		/* that is idle */
	assert_false(thread_watch(TL_ENGINE_LLAMA, "server", TL_ROLE_FRONT) & 1u << TL_WAIT_FUTEX);	/* each token */
	assert_false(thread_watch(TL_ENGINE_LLAMA, "server", TL_ROLE_ENGINE) & WATCH_RUN);		/* each step */
	assert_int_equal(thread_watch(TL_ENGINE_VLLM, "api", TL_ROLE_OTHER), WATCH_CODE);
	assert_int_equal(thread_watch(TL_ENGINE_VLLM, "api", TL_ROLE_COMPUTE), 0);
	assert_int_equal(thread_watch(TL_ENGINE_LLAMA, "server", TL_ROLE_OTHER), 0);
	/* A pool's threads sleep in futexes when they are idle; that they run for long is what tells. */
	assert_int_equal(thread_watch(TL_ENGINE_VLLM, "front", TL_ROLE_FRONT), WATCH_RUN | WATCH_CODE);
	assert_int_equal(thread_watch(TL_ENGINE_VLLM, "front", TL_ROLE_OTHER), WATCH_RUN | WATCH_CODE);
}

static void test_rank__from_a_title(void **state)
{
	(void)state;
	assert_int_equal(thread_rank("VLLM::Worker_TP3"), 3);
	assert_int_equal(thread_rank("sglang::scheduler_TP12"), 12);
	assert_int_equal(thread_rank("VLLM::EngineCore"), -1);
	assert_int_equal(thread_rank("HTTP"), -1);
	assert_int_equal(thread_rank(""), -1);
}

/* ---- code ---- */

static void test_code__of_libraries(void **state)
{
	(void)state;
	assert_int_equal(code_of_library("/x/tokenizers/tokenizers.abi3.so"), TL_CODE_TOKENIZER);
	assert_int_equal(code_of_library("/x/xgrammar/xgrammar_bindings.cpython-312.so"), TL_CODE_GRAMMAR);
	assert_int_equal(code_of_library("/x/_json.cpython-311-x86_64-linux-gnu.so"), TL_CODE_JSON);
	assert_int_equal(code_of_library("/x/torch/lib/libtorch_cpu.so"), CODE_USUAL);
	assert_int_equal(code_of_library("/usr/lib/libcuda.so.1"), TL_CODE_LAUNCH);
	assert_int_equal(code_of_library("/x/triton/_C/libtriton.so"), TL_CODE_COMPILE);
	assert_int_equal(code_of_library("/lib/libc.so.6"), -1);
	assert_int_equal(code_of_library("/x/libpython3.11.so.1.0"), -1);
	assert_true(code_has_symbols("/x/libpython3.11.so.1.0") && code_has_symbols("/usr/bin/python3.12"));
	assert_true(code_has_symbols("/x/libllama.so") && !code_has_symbols("/lib/libc.so.6"));
	assert_true(code_has_symbols("/v/python3.11/site-packages/xllamacpp/xllamacpp.cpython-311-x86_64-linux-gnu.so"));
	assert_false(code_has_symbols("/v/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so"));
	assert_false(code_has_symbols("/opt/llama/lib/libstdc++.so.6"));
}

static void test_code__of_symbols(void **state)
{
	(void)state;
	assert_int_equal(code_of_symbol("gc_collect_main"), TL_CODE_GC);
	assert_int_equal(code_of_symbol("gc_collect_main.constprop.0"), TL_CODE_GC);
	assert_int_equal(code_of_symbol("sre_ucs1_match"), TL_CODE_REGEX);
	assert_int_equal(code_of_symbol("_ZL25llama_grammar_reject_candidates"), TL_CODE_GRAMMAR);
	assert_int_equal(code_of_symbol("_ZN21llm_tokenizer_bpe_session8tokenizeEv"), TL_CODE_TOKENIZER);
	assert_int_equal(code_of_symbol("ggml_graph_compute_thread"), CODE_USUAL);
	assert_int_equal(code_of_symbol("_PyEval_EvalFrameDefault"), -1);
	assert_int_equal(code_of_symbol("my_gc_collect"), -1);
	assert_int_equal(code_of_symbol("PyGC_Collector"), -1);
	assert_int_equal(code_of_symbol(""), -1);
}

static void test_code__of_python(void **state)
{
	(void)state;
	assert_int_equal(code_of_python("/v/vllm/v1/engine/detokenizer.py", "update"), TL_CODE_DETOKENIZER);
	assert_int_equal(code_of_python("/v/transformers/tokenization_utils_fast.py", "_encode"), TL_CODE_TOKENIZER);
	assert_int_equal(code_of_python("/v/prometheus_client/exposition.py", "generate_latest"), TL_CODE_METRICS);
	assert_int_equal(code_of_python("/v/torch/_inductor/codecache.py", "load"), TL_CODE_COMPILE);
	assert_int_equal(code_of_python("/v/jinja2/environment.py", "render"), TL_CODE_TEMPLATE);
	assert_int_equal(code_of_python("/usr/lib/python3.11/json/encoder.py", "iterencode"), TL_CODE_JSON);
	assert_int_equal(code_of_python("<frozen importlib._bootstrap>", "_load"), TL_CODE_COMPILE);
	assert_int_equal(code_of_python("/app/main.py", "handler"), -1);
}

/* A name that is looked for; the library's is not, so the file is given. */
__attribute__((noipa)) int gc_collect_main(int n);
__attribute__((noipa)) int gc_collect_main(int n)
{
	return n * 3 + 1;
}

static void test_ranges__of_this_program(void **state)
{
	struct elf_range *r = NULL;
	const struct elf_range *at;
	size_t n = 0, found = 0;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), err;

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(gc_collect_main(2), 7);
	OOM_LOOP({
		r = NULL;
		err = elf_ranges_read(fd, &r, &n);
		if (err)
			assert_int_equal(err, -ENOMEM);
		else
			found = n;
		free(r);
	});
	assert_int_equal(err, 0);
	assert_int_equal(elf_ranges_read(fd, &r, &n), 0);
	close(fd);
	assert_true(n > 0 && n == found);
	for (size_t i = 0; i < n; i++) {
		assert_true(i == 0 || r[i].start >= r[i - 1].start);
		if (strcmp(r[i].name, "gc_collect_main"))
			continue;
		assert_int_equal(r[i].code, TL_CODE_GC);
		at = elf_ranges_at(r, n, r[i].start);
		assert_ptr_equal(at, &r[i]);
		assert_ptr_equal(elf_ranges_at(r, n, r[i].end - 1), &r[i]);
		assert_ptr_not_equal(elf_ranges_at(r, n, r[i].end), &r[i]);
		found = 0;
	}
	assert_int_equal(found, 0);
	assert_null(elf_ranges_at(r, n, r[0].start - 1));
	assert_null(elf_ranges_at(r, 0, 1));
	free(r);
}

static void test_ranges__of_what_is_no_program(void **state)
{
	struct elf_range *r = (void *)1;
	size_t n = 1;
	int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);

	(void)state;
	assert_int_equal(elf_ranges_read(fd, &r, &n), 0);
	assert_null(r);
	assert_int_equal(n, 0);
	close(fd);
}

/* ---- cgroups ---- */

static const char v1_mounts[] =
	"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
	"31 22 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	"32 22 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
	"33 22 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n";
static const char v2_mounts[] = "31 22 0:26 /../.. /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate\n";

static void test_cgroup__mounts(void **state)
{
	struct cgroup_mount m;

	(void)state;
	assert_int_equal(cgroup_parse_mounts(v1_mounts, &m), 0);
	assert_true(m.v1);
	assert_string_equal(m.dir, "/sys/fs/cgroup/cpu,cpuacct");
	assert_int_equal(cgroup_parse_mounts(v2_mounts, &m), 0);
	assert_false(m.v1);
	assert_string_equal(m.root, "/../..");
	assert_int_equal(cgroup_parse_mounts("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n", &m), -ENOENT);
	assert_int_equal(cgroup_parse_mounts("- cgroup2", &m), -ENOENT);
	assert_int_equal(cgroup_parse_mounts("", &m), -ENOENT);
}

static void test_cgroup__path_and_folder(void **state)
{
	static const char text[] = "12:cpuset:/a\n5:cpu,cpuacct:/docker/0123\n0::/user.slice\n";
	struct cgroup_mount m = { .dir = "/c", .root = "/" };
	char path[32], dir[32];

	(void)state;
	assert_int_equal(cgroup_parse_path(text, true, path, sizeof(path)), 0);
	assert_string_equal(path, "/docker/0123");
	assert_int_equal(cgroup_parse_path(text, false, path, sizeof(path)), 0);
	assert_string_equal(path, "/user.slice");
	assert_int_equal(cgroup_parse_path(text, true, path, 5), -ENAMETOOLONG);
	assert_int_equal(cgroup_parse_path("12:cpuset:/a\n", true, path, sizeof(path)), -ENOENT);
	assert_int_equal(cgroup_parse_path("cpu", true, path, sizeof(path)), -ENOENT);
	assert_int_equal(cgroup_dir(&m, "/", dir, sizeof(dir)), 0);
	assert_string_equal(dir, "/c");
	assert_int_equal(cgroup_dir(&m, "/x/y", dir, sizeof(dir)), 0);
	assert_string_equal(dir, "/c/x/y");
	strcpy(m.root, "/pod");
	assert_int_equal(cgroup_dir(&m, "/pod/a", dir, sizeof(dir)), 0);
	assert_string_equal(dir, "/c/a");
	assert_int_equal(cgroup_dir(&m, "/podium", dir, sizeof(dir)), -ENOENT);
	assert_int_equal(cgroup_dir(&m, "/pod/a", dir, 3), -ENAMETOOLONG);
}

static void test_cgroup__stat_and_quota(void **state)
{
	uint64_t quota = 7, period = 7;
	struct cgroup_stat s;

	(void)state;
	assert_int_equal(cgroup_parse_stat("usage_usec 9\nuser_usec 1\nnr_periods 5\nnr_throttled 2\n"
					   "throttled_usec 180000\nnr_bursts 0\n", &s), 0);
	assert_int_equal(s.n_periods, 5);
	assert_int_equal(s.n_throttled, 2);
	assert_int_equal(s.throttled_ns, 180 * MS);
	assert_int_equal(cgroup_parse_stat("nr_periods 5\nnr_throttled 2\nthrottled_time 1234\n", &s), 0);
	assert_int_equal(s.throttled_ns, 1234);
	assert_int_equal(cgroup_parse_stat("usage_usec 9\n", &s), -EINVAL);
	assert_int_equal(cgroup_parse_stat("", &s), -EINVAL);
	assert_int_equal(cgroup_parse_max("20000 100000\n", &quota, &period), 0);
	assert_true(quota == 20000 && period == 100000);
	assert_int_equal(cgroup_parse_max("max 100000\n", &quota, &period), 0);
	assert_true(quota == 0 && period == 100000);
	assert_int_equal(cgroup_parse_max("100", &quota, &period), -EINVAL);
	assert_int_equal(cgroup_parse_max("5 0", &quota, &period), -EINVAL);
	assert_int_equal(cgroup_parse_max("", &quota, &period), -EINVAL);
}

/* ---- events ---- */

enum { MAX_OUT = 64 };
static struct tl_thread_span spans[MAX_OUT];
static struct tl_thread told[MAX_OUT];
static struct tl_code code;
static size_t n_spans, n_told, n_codes;

static int keep(void *ctx, const struct tl_hdr *ev)
{
	(void)ctx;
	if (ev->kind == TL_THREAD_SPAN && n_spans < MAX_OUT)
		spans[n_spans++] = *(const struct tl_thread_span *)ev;
	if (ev->kind == TL_THREAD && n_told < MAX_OUT)
		told[n_told++] = *(const struct tl_thread *)ev;
	if (ev->kind == TL_CODE) {
		code = *(const struct tl_code *)ev;
		n_codes++;
	}
	return 0;
}
static const struct emit out = { keep, NULL };

static struct src_bpf *bpf;
static struct host *host;

static int open_host(void **state)
{
	static const struct src_bpf_opts opts = { .ring_bytes = 64 << 10 };
	const char *why;

	(void)state;
	if (geteuid() || src_bpf__open(&opts, &bpf, &why) || host__open(bpf, &host))
		skip();
	n_spans = n_told = n_codes = 0;
	return host__add(host, &(struct host_process){ .tgid = getpid(), .server = getpid(),
			 .engine = TL_ENGINE_LLAMA, .role = "server", .title = "" });
}

static int close_host(void **state)
{
	(void)state;
	host__close(host);
	src_bpf__close(bpf);
	host = NULL;
	bpf = NULL;
	return 0;
}

static struct tl_thread_span sleep_of(uint64_t since_ms, uint64_t end_ms, uint32_t by_tid, uint64_t by_ms)
{
	return (struct tl_thread_span){
		.hdr = { sizeof(struct tl_thread_span), TL_THREAD_SPAN, 0, getpid(), getpid(), end_ms * MS },
		.since_ns = since_ms * MS, .state = TL_SPAN_SLEEP, .wait = TL_WAIT_FUTEX,
		.by_tgid = by_tid ? getpid() : 0, .by_tid = by_tid, .by_ns = by_ms * MS,
	};
}

static void give(struct tl_thread_span s)
{
	assert_int_equal(host__take(host, &s.hdr, &out), 1);
}

static void test_sleep__pieces_get_the_one_that_ended_the_last(void **state)
{
	(void)state;
	give(sleep_of(100, 105, 0, 0));		/* timeouts */
	give(sleep_of(105, 110, 0, 0));
	give(sleep_of(118, 123, 0, 0));		/* others had the CPU in between */
	assert_int_equal(n_spans, 0);
	give(sleep_of(123, 124, 77, 16));	/* who had been awake since 108 */
	assert_int_equal(n_spans, 2);
	assert_int_equal(spans[0].since_ns, 100 * MS);
	assert_int_equal(spans[0].hdr.ts_ns, 110 * MS);
	assert_int_equal(spans[0].by_tid, 77);
	assert_int_equal(spans[0].by_ns, 2 * MS);
	assert_int_equal(spans[1].since_ns, 118 * MS);
	assert_int_equal(spans[1].hdr.ts_ns, 124 * MS);
	assert_int_equal(spans[1].by_ns, 6 * MS);
	assert_true(n_told == 1 && told[0].hdr.tid == (uint32_t)getpid());	/* before them */
}

static void test_sleep__that_nobody_ended_is_told_later(void **state)
{
	struct timespec t;

	(void)state;
	give(sleep_of(100, 105, 0, 0));
	give(sleep_of(500, 505, 0, 0));		/* another one */
	assert_int_equal(n_spans, 1);
	assert_int_equal(spans[0].by_tid, 0);
	clock_gettime(CLOCK_MONOTONIC, &t);
	assert_int_equal(host__poll(host, t.tv_sec * 1000000000ull, &out), 0);
	assert_int_equal(n_spans, 2);
	give(sleep_of(600, 605, 9, 100));	/* longer than the sleep */
	assert_int_equal(spans[2].by_ns, 5 * MS);
}

static void test_wait__is_that_of_the_process_with_most(void **state)
{
	struct {
		struct tl_raw_wait w;
		struct tl_stint s[5];
	} ev = {
		.w = { { sizeof(ev), TL_RAW_WAIT, 0, getpid(), getpid(), 200 * MS }, 100 * MS, 1, 0, 2, 5, 0 },
		.s = {
			{ 180 * MS, 200 * MS, 5, 50, 51, "b" },
			{ 150 * MS, 180 * MS, 4, 40, 41, "a" },
			{ 135 * MS, 150 * MS, 5, 50, 52, "b2" },
			{ 110 * MS, 135 * MS, 0, 0, 0, "swapper/1" },
			{ 20 * MS, 110 * MS, 4, 60, 60, "c" },		/* mostly before */
		},
	};

	(void)state;
	assert_int_equal(host__take(host, &ev.w.hdr, &out), 1);
	assert_int_equal(n_spans, 1);
	assert_int_equal(spans[0].state, TL_SPAN_RUNNABLE);
	assert_int_equal(spans[0].hdr.flags, TL_SPAN_MIGRATED);
	assert_int_equal(spans[0].by_tgid, 50);
	assert_int_equal(spans[0].by_tid, 51);		/* of its threads the one with most */
	assert_int_equal(spans[0].by_ns, 35 * MS);
	assert_int_equal(spans[0].by_cgroup, 5);
	assert_string_equal(spans[0].by_name, "b");
	assert_int_equal(spans[0].major_faults, 2);
	ev.w.n_stints = 0;
	ev.w.hdr.size = sizeof(ev.w);
	assert_int_equal(host__take(host, &ev.w.hdr, &out), 1);
	assert_int_equal(spans[1].by_tgid, 0);
	assert_int_equal(spans[1].by_ns, 0);
}

static void give_child(uint32_t what, uint32_t tgid, uint64_t ms, const char *name)
{
	struct tl_raw_child ev = { .hdr = { sizeof(ev), TL_RAW_CHILD, 0, tgid, tgid, ms * MS }, .what = what,
				   .owner = getpid() };

	strcpy(ev.name, name);
	assert_int_equal(host__take(host, &ev.hdr, &out), 1);
}

static void test_compilers__are_one_wait(void **state)
{
	(void)state;
	give_child(TL_PROC_EXEC, 9001, 90, "sh");	/* no compiler */
	give_child(TL_PROC_EXIT, 9001, 95, "sh");
	give_child(TL_PROC_EXEC, 9002, 100, "g++-12");
	give_child(TL_PROC_EXEC, 9003, 110, "cc1plus");
	give_child(TL_PROC_EXEC, 9003, 111, "cc1plus");	/* once more */
	give_child(TL_PROC_EXIT, 9003, 400, "cc1plus");
	assert_int_equal(n_codes, 0);
	give_child(TL_PROC_EXIT, 9002, 500, "g++-12");
	assert_int_equal(n_codes, 1);
	assert_int_equal(code.code, TL_CODE_COMPILE);
	assert_int_equal(code.hdr.tid, getpid());
	assert_int_equal(code.since_ns, 100 * MS);
	assert_int_equal(code.hdr.ts_ns, 500 * MS);
	assert_string_equal(code.frame, "g++-12");
}

static void test_steps_and_http__give_roles(void **state)
{
	struct tl_hdr step = { sizeof(step), TL_RAW_LLAMA_STEP, 0, getpid(), getpid(), 1 };
	struct tl_hdr net = { sizeof(net), TL_RAW_NET, 0, getpid(), getpid() + 1, 1 };
	struct tl_hdr stranger = { sizeof(net), TL_RAW_NET, 0, 1, 1, 1 };

	(void)state;
	assert_int_equal(host__take(host, &net, &out), 0);
	assert_int_equal(n_told, 1);
	assert_int_equal(told[0].role, TL_ROLE_FRONT);
	assert_int_equal(told[0].server, getpid());
	assert_int_equal(host__take(host, &net, &out), 0);
	assert_int_equal(n_told, 1);			/* once */
	assert_int_equal(host__take(host, &step, &out), 0);
	assert_int_equal(told[1].role, TL_ROLE_ENGINE);
	assert_true(told[1].name[0]);
	assert_int_equal(host__take(host, &stranger, &out), 0);
	assert_int_equal(n_told, 2);
}

static void test_open__survives_oom(void **state)
{
	const struct host_process self = { .tgid = getpid(), .server = getpid(), .engine = TL_ENGINE_VLLM,
					   .role = "api", .title = "" };
	struct host *h;
	int err;

	(void)state;
	close_host(NULL);
	assert_int_equal(src_bpf__open(&(struct src_bpf_opts){ .ring_bytes = 64 << 10 }, &bpf,
				       &(const char *){ NULL }), 0);
	OOM_LOOP({
		h = NULL;
		err = host__open(bpf, &h);
		if (!err)
			err = host__add(h, &self);
		if (!err)
			err = host__poll(h, 1, &out);
		if (err)
			assert_int_equal(err, -ENOMEM);
		host__close(h);
	});
	assert_int_equal(err, 0);
	host__close(NULL);
}

int main(void)
{
#define WITH_HOST(test) cmocka_unit_test_setup_teardown(test, open_host, close_host)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_roles__by_what_was_seen),
		cmocka_unit_test(test_watch__only_what_tells_something),
		cmocka_unit_test(test_rank__from_a_title),
		cmocka_unit_test(test_code__of_libraries),
		cmocka_unit_test(test_code__of_symbols),
		cmocka_unit_test(test_code__of_python),
		cmocka_unit_test(test_ranges__of_this_program),
		cmocka_unit_test(test_ranges__of_what_is_no_program),
		cmocka_unit_test(test_cgroup__mounts),
		cmocka_unit_test(test_cgroup__path_and_folder),
		cmocka_unit_test(test_cgroup__stat_and_quota),
		WITH_HOST(test_sleep__pieces_get_the_one_that_ended_the_last),
		WITH_HOST(test_sleep__that_nobody_ended_is_told_later),
		WITH_HOST(test_wait__is_that_of_the_process_with_most),
		WITH_HOST(test_compilers__are_one_wait),
		WITH_HOST(test_steps_and_http__give_roles),
		WITH_HOST(test_open__survives_oom),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
