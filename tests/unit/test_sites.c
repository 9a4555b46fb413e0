/* SPDX-License-Identifier: Apache-2.0 */
/* sites and the table of probes: found in this very program, which defines two of the functions. */
#include "unit.h"

#include "source/probes.h"
#include "source/sites.h"
#include "tl_event.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

/* Bytes are given, so that it is known where the probe has to stand. */
__asm__(".text\n"
	".globl llama_process\n.type llama_process, @function\nllama_process:\n"
	"	.byte 0x85, 0xf6, 0x74, 0x00, 0xc3\n"		/* test esi,esi; je +0; ret */
	".size llama_process, 5\n"
	".type llama_decode, @function\nllama_decode:\n"	/* local: in .symtab only */
	"	.byte 0x48, 0x83, 0xec, 0x08, 0xc3\n"		/* sub rsp,8; ret */
	".size llama_decode, 5\n"
	".type llama_memory_seq_rm, @object\nllama_memory_seq_rm:\n	.byte 0\n"
	".size llama_memory_seq_rm, 1\n"			/* no function: to be left alone */
	".globl llama_kv_self_seq_rm\n.type llama_kv_self_seq_rm, @function\nllama_kv_self_seq_rm:\n"
	"	.byte 0x55, 0xc3\n.size llama_kv_self_seq_rm, 2\n"
	".globl llama_kv_cache_seq_rm\n.type llama_kv_cache_seq_rm, @function\nllama_kv_cache_seq_rm:\n"
	"	.byte 0x55, 0xc3\n.size llama_kv_cache_seq_rm, 2\n");
extern const uint8_t llama_process[], llama_kv_self_seq_rm[];

static size_t row_of(const char *name)
{
	for (size_t i = 0; i < n_probes; i++) {
		if (!strcmp(probes[i].name, name))
			return i;
	}
	fail_msg("no row '%s'", name);
	return 0;
}

static const struct site *site_of(const struct sites *s, const char *row, size_t *ret_n)
{
	const struct site *found = NULL;

	*ret_n = 0;
	for (size_t i = 0; i < s->n; i++) {
		if (s->sites[i].row != row_of(row))
			continue;
		found = &s->sites[i];
		++*ret_n;
	}
	return found;
}

static void assert_bytes_at(const struct site *s, const void *want, size_t len)
{
	uint8_t code[8];

	assert_int_equal(pread(s->fd, code, len, s->offset), len);
	assert_memory_equal(code, want, len);
}

static void test_sites__finds_own_functions(void **state)
{
	const struct site *s;
	struct sites sites;
	char buf[256];
	size_t n;

	(void)state;
	assert_int_equal(sites__find(getpid(), TL_ENGINE_LLAMA, &sites), 0);
	assert_false(sites.stripped);

	s = site_of(&sites, "step begin", &n);
	assert_int_equal(n, 1);
	assert_true(s->place.cheap);
	assert_int_equal(s->place.offset, 2);
	assert_bytes_at(s, llama_process + 2, 3);
	assert_string_equal(s->file, "test_sites");

	s = site_of(&sites, "step end", &n);		/* another row, same function */
	assert_int_equal(n, 1);
	assert_bytes_at(s, llama_process + 2, 3);

	s = site_of(&sites, "step begin, older", &n);	/* a local symbol */
	assert_int_equal(n, 1);
	assert_false(s->place.cheap);
	assert_bytes_at(s, "\x48\x83\xec\x08\xc3", 5);
	assert_int_equal(sites__describe(&sites, s->row, buf, sizeof(buf)), 1);
	assert_non_null(strstr(buf, "about 10 us"));

	s = site_of(&sites, "prompt begin", &n);	/* the first alternative that is a function */
	assert_int_equal(n, 1);
	assert_bytes_at(s, llama_kv_self_seq_rm, 2);

	site_of(&sites, "task launch", &n);
	assert_int_equal(n, 0);
	assert_int_equal(sites__describe(&sites, row_of("task launch"), buf, sizeof(buf)), 0);
	assert_non_null(strstr(buf, "launch_slot_with_task"));
	sites__free(&sites);
}

/* A copy of this program that is mapped too and deleted since: both are found, each in its file. */
static void test_sites__finds_all_definers(void **state)
{
	int in = open("/proc/self/exe", O_RDONLY), out = memfd_create("llama-copy", 0);
	struct sites sites;
	char buf[65536];
	ssize_t len;
	void *map;
	size_t n;

	(void)state;
	assert_true(in >= 0 && out >= 0);
	while ((len = read(in, buf, sizeof(buf))) > 0)
		assert_int_equal(write(out, buf, len), len);
	map = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, out, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	close(in);
	close(out);
	assert_int_equal(sites__find(getpid(), 0, &sites), 0);
	site_of(&sites, "step begin", &n);
	assert_int_equal(n, 2);
	assert_int_equal(sites__describe(&sites, row_of("step begin"), buf, sizeof(buf)), 2);
	assert_int_equal(sites.n_fds, 2);
	sites__free(&sites);
	munmap(map, 4096);
}

static void test_sites__says_what_is_wrong(void **state)
{
	struct sites sites = { .n = 77 };

	(void)state;
	assert_int_equal(sites__find(0x3ffffff, TL_ENGINE_LLAMA, &sites), -ESRCH);
	assert_int_equal(sites.n, 77);
	sites = (struct sites){ 0 };
	sites__free(&sites);
}

static void test_sites__survives_oom(void **state)
{
	struct sites sites;
	int err;

	(void)state;
	OOM_LOOP({
		err = sites__find(getpid(), TL_ENGINE_LLAMA, &sites);
		if (err)
			assert_int_equal(err, -ENOMEM);
		else
			sites__free(&sites);
	});
}

static void test_probes__table_holds_together(void **state)
{
	(void)state;
	assert_true(n_probes <= 64);	/* bits of tl_host.probes */
	for (size_t i = 0; i < n_probes; i++) {
		const struct probe *p = &probes[i];
		bool user = p->type == PROBE_UPROBE || p->type == PROBE_URETPROBE;

		assert_true(strlen(p->prog) <= 15);	/* so that bpftool shows it whole */
		assert_true(p->lost_without && *p->lost_without);
		assert_true(user == (p->engine != 0) && user == (p->group != NULL));
		assert_true(p->tier == (user ? TL_T1 : TL_T0));
		assert_true(p->n_args <= 6);
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(p->name, probes[k].name);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sites__finds_own_functions),
		cmocka_unit_test(test_sites__finds_all_definers),
		cmocka_unit_test(test_sites__says_what_is_wrong),
		cmocka_unit_test(test_sites__survives_oom),
		cmocka_unit_test(test_probes__table_holds_together),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
