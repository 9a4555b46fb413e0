/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of stacks: what of a run on a CPU is told, and with which times. */
#include "unit.h"
#include "source/bpf.h"
#include "source/host.h"

#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MS 1000000ull

enum { MAX_CODES = 16 };
static struct tl_code codes[MAX_CODES];
static size_t n_codes;

static int keep(void *ctx, const struct tl_hdr *ev)
{
	(void)ctx;
	if (ev->kind == TL_CODE && n_codes < MAX_CODES)
		codes[n_codes++] = *(const struct tl_code *)ev;
	return 0;
}
static const struct emit out = { keep, NULL };

static struct src_bpf *bpf;
static struct host *host;

/* ---- what is sampled: this program, and once more, mapped by a name as Python's library has ---- */

void gc_collect_here(void);
void walk_about_here(void);
__attribute__((noinline)) void gc_collect_here(void)
{
	__asm__ volatile("nop; nop; nop");
}
__attribute__((noinline)) void walk_about_here(void)
{
	__asm__ volatile("nop; nop");
}

static char folder[] = "/tmp/tokenlag-test-XXXXXX", library[sizeof(folder) + 20];
static char *mapped;
static size_t mapped_bytes;

struct place {
	uintptr_t at, offset;
};

/* Where in its file a function of this program is. */
static int find_place(struct dl_phdr_info *info, size_t size, void *ctx)
{
	struct place *p = ctx;

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *h = &info->dlpi_phdr[i];
		uintptr_t at = p->at - info->dlpi_addr;

		if (h->p_type == PT_LOAD && at - h->p_vaddr < h->p_filesz)
			p->offset = at - h->p_vaddr + h->p_offset;
	}
	return 1;	/* the program itself comes first */
}

static uint64_t ip_of(void (*function)(void))
{
	struct place p = { .at = (uintptr_t)function };

	if (function != gc_collect_here)
		return p.at + 1;
	dl_iterate_phdr(find_place, &p);
	assert_true(p.offset);
	return (uintptr_t)mapped + p.offset + 1;
}

static void map_library(void)
{
	int from = open("/proc/self/exe", O_RDONLY), to;
	struct stat st;

	assert_non_null(mkdtemp(folder));
	snprintf(library, sizeof(library), "%s/libpython3.11.so", folder);
	to = open(library, O_RDWR | O_CREAT, 0700);
	assert_true(from >= 0 && to >= 0 && !fstat(from, &st));
	mapped_bytes = (size_t)st.st_size;
	for (off_t at = 0; at < st.st_size;)
		assert_true(copy_file_range(from, &at, to, NULL, mapped_bytes - (size_t)at, 0) > 0);
	mapped = mmap(NULL, mapped_bytes, PROT_READ | PROT_EXEC, MAP_PRIVATE, to, 0);
	assert_true(mapped != MAP_FAILED);
	close(from);
	close(to);
}

/* Other libraries that a thread may be in: their names are all that is told of them. */
enum { N_OTHERS = 12, OTHER_BYTES = 4096 };
static char *others[N_OTHERS];

static void name_other(int i, char path[64])
{
	snprintf(path, 64, "%s/libother%d.so", folder, i);
}

static void map_others(void)
{
	char path[64];

	for (int i = 0; i < N_OTHERS; i++) {
		int fd;

		name_other(i, path);
		fd = open(path, O_RDWR | O_CREAT, 0700);
		assert_true(fd >= 0 && !ftruncate(fd, OTHER_BYTES));
		others[i] = mmap(NULL, OTHER_BYTES, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
		assert_true(others[i] != MAP_FAILED);
		close(fd);
	}
}

static int set_up(void **state)
{
	static const struct src_bpf_opts opts = { .ring_bytes = 64 << 10 };
	const char *why;

	(void)state;
	if (geteuid() || src_bpf__open(&opts, &bpf, &why) || host__open(bpf, &host))
		skip();
	if (!mapped) {
		map_library();
		map_others();
	}
	n_codes = 0;
	return host__add(host, &(struct host_process){ .tgid = getpid(), .server = getpid(),
			 .engine = TL_ENGINE_VLLM, .role = "engine", .title = "" });
}

static int tear_down(void **state)
{
	(void)state;
	host__close(host);
	src_bpf__close(bpf);
	host = NULL;
	bpf = NULL;
	return 0;
}

static int remove_libraries(void **state)
{
	char path[64];

	(void)state;
	if (mapped) {
		for (int i = 0; i < N_OTHERS; i++) {
			munmap(others[i], OTHER_BYTES);
			name_other(i, path);
			unlink(path);
		}
		munmap(mapped, mapped_bytes);
		unlink(library);
		rmdir(folder);
	}
	return 0;
}

/* ---- samples ---- */

/* A run that began at 1000 ms; `ms` since then. ip 0: its end */
static void give_ip(uint64_t ms, uint64_t ip)
{
	struct tl_raw_stack ev = {
		.hdr = { sizeof(ev), TL_RAW_STACK, ip ? 0 : TL_STACK_END, getpid(), getpid(), (1000 + ms) * MS },
		.busy_since_ns = 1000 * MS,
		.ip = ip,
	};

	assert_int_equal(host__take(host, &ev.hdr, &out), 1);
}

static void give(uint64_t ms, void (*function)(void))
{
	give_ip(ms, function ? ip_of(function) : 0);
}

static void give_every_10_ms(uint64_t from_ms, uint64_t until_ms, void (*function)(void))
{
	for (uint64_t ms = from_ms; ms < until_ms; ms += 10)
		give(ms, function);
}

struct told {
	uint16_t code;
	uint64_t since_ms, end_ms;	/* in the run */
	uint16_t n, of;
};

static void assert_told(const struct told *want, size_t n)
{
	assert_int_equal(n_codes, n);
	for (size_t i = 0; i < n; i++) {
		const struct told *w = &want[i];
		const struct tl_code *c = &codes[i];

		assert_int_equal(c->code, w->code);
		assert_int_equal(c->since_ns, (1000 + w->since_ms) * MS);
		assert_int_equal(c->hdr.ts_ns, (1000 + w->end_ms) * MS);
		assert_int_equal(c->n_samples, w->n);
		assert_int_equal(c->of_samples, w->of);
	}
}
#define ASSERT_TOLD(...) do {					\
	static const struct told want_[] = { __VA_ARGS__ };	\
	assert_told(want_, ARRAY_SIZE(want_));			\
} while (0)

/* What else the run was for does not count those samples. */
static void test_collector__of_a_busy_second_is_told_with_its_times(void **state)
{
	(void)state;
	give_every_10_ms(10, 200, walk_about_here);
	give_every_10_ms(200, 350, gc_collect_here);
	give_every_10_ms(350, 600, walk_about_here);
	give_every_10_ms(600, 700, gc_collect_here);
	give_every_10_ms(700, 1000, walk_about_here);
	give(1000, NULL);
	ASSERT_TOLD({ TL_CODE_OTHER, 0, 1000, 74, 74 },
		    { TL_CODE_GC, 190, 340, 15, 15 },
		    { TL_CODE_GC, 590, 690, 10, 10 });
	assert_string_equal(codes[1].frame, "gc_collect_here");
}

/* An engine's loop is in more places than are told apart. */
static void test_collector__behind_very_much_else(void **state)
{
	bool told = false;

	(void)state;
	for (uint64_t i = 0; i < N_OTHERS; i++)
		give_ip(10 + 10 * i, (uintptr_t)others[i] + 1);
	give_every_10_ms(200, 350, gc_collect_here);
	for (uint64_t ms = 350; ms < 1000; ms += 10)
		give_ip(ms, (uintptr_t)others[0] + 1);
	give(1000, NULL);
	for (size_t i = 0; i < n_codes; i++)
		told |= codes[i].code == TL_CODE_GC && codes[i].since_ns == 1190 * MS && codes[i].hdr.ts_ns == 1340 * MS;
	assert_true(told);
}

/* A sample of something else, as a destructor is, does not end it. */
static void test_collector__pauses_in_it(void **state)
{
	(void)state;
	give_every_10_ms(10, 200, walk_about_here);
	give_every_10_ms(200, 250, gc_collect_here);
	give_every_10_ms(250, 280, walk_about_here);
	give_every_10_ms(280, 300, gc_collect_here);
	give_every_10_ms(300, 500, walk_about_here);
	give(500, NULL);
	ASSERT_TOLD({ TL_CODE_OTHER, 0, 500, 42, 42 },
		    { TL_CODE_GC, 190, 290, 7, 7 });
}

/* The run is nothing else: it is told whole, its begin was not sampled. */
static void test_collector__for_most_of_a_run(void **state)
{
	(void)state;
	give_every_10_ms(10, 20, walk_about_here);
	give_every_10_ms(20, 100, gc_collect_here);
	give(105, NULL);
	ASSERT_TOLD({ TL_CODE_OTHER, 0, 105, 1, 9 }, { TL_CODE_GC, 0, 105, 8, 9 });
}

/* Too few samples to say when it was. */
static void test_collector__of_a_moment(void **state)
{
	(void)state;
	give_every_10_ms(10, 200, walk_about_here);
	give_every_10_ms(200, 220, gc_collect_here);
	give(220, NULL);
	ASSERT_TOLD({ TL_CODE_OTHER, 0, 220, 19, 21 }, { TL_CODE_GC, 0, 220, 2, 21 });
}

static void test_run__is_told_once(void **state)
{
	(void)state;
	give_every_10_ms(10, 60, gc_collect_here);
	give(60, NULL);
	give(60, NULL);
	ASSERT_TOLD({ TL_CODE_GC, 0, 60, 5, 5 });
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(test_collector__of_a_busy_second_is_told_with_its_times), T(test_collector__behind_very_much_else),
		T(test_collector__pauses_in_it),
		T(test_collector__for_most_of_a_run), T(test_collector__of_a_moment), T(test_run__is_told_once),
	};

	return cmocka_run_group_tests(tests, NULL, remove_libraries);
}
