/* SPDX-License-Identifier: Apache-2.0 */
/* elfsyms: on this program itself, on the C library, and on files that somebody broke. */
#include "unit.h"

#include "source/elfsyms.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* What is looked for in our own symbol table. */
int elfsyms_test_step(int x);
int only_elfsyms_test_tail(int x);
int other_elfsyms_test_step(int x);
extern int elfsyms_test_number, elfsyms_test_zero, elfsyms_test_placed;

__attribute__((noinline)) int elfsyms_test_step(int x)
{
	return x * 3 + elfsyms_test_number;
}
__attribute__((noinline)) int only_elfsyms_test_tail(int x)
{
	return x * 5;
}
__attribute__((noinline)) int other_elfsyms_test_step(int x)
{
	return x * 7;
}
int elfsyms_test_number = 4242;
int elfsyms_test_zero;

static const char *const names[] = {
	"elfsyms_test_step", "elfsyms_test_tail",   "elfsyms_test_number",
	"elfsyms_test_zero", "elfsyms_test_absent",
};
enum { STEP, TAIL, NUMBER, ZERO, ABSENT, N_NAMES };

static int open_self(struct elfsyms *e)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(elfsyms_open(fd, e), 0);
	return fd;
}

static void test_elfsyms__find_static(void **state)
{
	Elf64_Sym syms[N_NAMES];
	struct elfsyms e;
	uint8_t code[8];
	int fd = open_self(&e), number = 0;

	(void)state;
	assert_true(elfsyms_has_symtab(&e));
	assert_int_equal(elfsyms_find_static(&e, names, N_NAMES, syms), 3);
	assert_int_not_equal(syms[STEP].st_name, 0);
	assert_int_equal(syms[TAIL].st_name, 0);	/* is the end of a longer name only */
	assert_int_equal(syms[ABSENT].st_name, 0);
	assert_int_equal(ELF64_ST_TYPE(syms[STEP].st_info), STT_FUNC);
	assert_int_equal(elfsyms_read(&e, syms[STEP].st_value, code, sizeof(code)), 0);
	assert_memory_equal(code, (void *)elfsyms_test_step, sizeof(code));
	assert_int_equal(elfsyms_read(&e, syms[NUMBER].st_value, &number, sizeof(number)), 0);
	assert_int_equal(number, elfsyms_test_number);
	assert_int_equal(elfsyms_read(&e, syms[ZERO].st_value, &number, sizeof(number)), -ENODATA);
	assert_int_equal(elfsyms_read(&e, UINT64_MAX - 2, &number, sizeof(number)), -ENODATA);
	assert_int_equal(only_elfsyms_test_tail(1) + other_elfsyms_test_step(1) + elfsyms_test_zero,
			 12);
	close(fd);
}

static void test_elfsyms__find_static_oom(void **state)
{
	Elf64_Sym syms[N_NAMES];
	struct elfsyms e;
	int fd = open_self(&e), got = 0;

	(void)state;
	OOM_LOOP({
		got = elfsyms_find_static(&e, names, N_NAMES, syms);
		assert_true(got == -ENOMEM || got == 3);
	});
	assert_int_equal(got, 3);
	close(fd);
}

static int open_libc(const struct link_map **ret_map)
{
	void *lib = dlopen("libc.so.6", RTLD_NOW);
	int fd;

	assert_non_null(lib);
	assert_int_equal(dlinfo(lib, RTLD_DI_LINKMAP, ret_map), 0);
	fd = open((*ret_map)->l_name, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

/* One that only this program has, a name that ends as another one does, and none. */
__attribute__((section(".elfsyms_test"))) int elfsyms_test_placed = 99;

static void test_elfsyms__section(void **state)
{
	struct elfsyms e;
	Elf64_Shdr s;
	int fd = open_self(&e), number = 0;

	(void)state;
	assert_int_equal(elfsyms_section(&e, ".elfsyms_test", &s), 0);
	assert_int_equal(s.sh_size, sizeof(int));
	assert_int_equal(elfsyms_read(&e, s.sh_addr, &number, sizeof(number)), 0);
	assert_int_equal(number, elfsyms_test_placed);
	assert_int_equal(elfsyms_section(&e, ".symtab", &s), 0);
	assert_int_equal(s.sh_type, SHT_SYMTAB);
	assert_int_equal(elfsyms_section(&e, ".elfsyms_tes", &s), -ENOENT);
	assert_int_equal(elfsyms_section(&e, ".elfsyms_test2", &s), -ENOENT);
	close(fd);
}

static void test_elfsyms__find_dynamic(void **state)
{
	static const char *const exported[] = { "getppid",     "abs",	      "labs",  "qsort",
						"sched_yield", "ntohs",	      "ffs",   "toupper",
						"rand",	       "getpagesize", "umask", "isatty" };
	const struct link_map *map;
	struct elfsyms e;
	Elf64_Sym s;
	int fd = open_libc(&map);

	(void)state;
	assert_int_equal(elfsyms_open(fd, &e), 0);
	for (size_t i = 0; i < ARRAY_SIZE(exported); i++) {
		Dl_info info;

		assert_int_equal(elfsyms_find(&e, exported[i], &s), 0);
		assert_true(dladdr((void *)(map->l_addr + s.st_value), &info));
		assert_ptr_equal(info.dli_saddr, (void *)(map->l_addr + s.st_value));
		assert_ptr_equal(info.dli_fbase, (void *)map->l_addr);
	}
	assert_int_equal(elfsyms_find(&e, "llama_decode", &s), -ENOENT);
	assert_int_equal(elfsyms_find(&e, "", &s), -ENOENT);
	/* imported, not defined */
	assert_int_equal(elfsyms_find(&e, "__tls_get_addr", &s), -ENOENT);
	close(fd);
}

/* The C library has both hash tables, so one can be hidden. */
static void test_elfsyms__find_by_old_hash(void **state)
{
	static const char *const some[] = { "getppid", "qsort", "sched_yield", "malloc", "pthread_create", "environ" };
	const struct link_map *map;
	Elf64_Sym want, got;
	struct elfsyms e;
	int fd = open_libc(&map);

	(void)state;
	assert_int_equal(elfsyms_open(fd, &e), 0);
	if (!e.hash) {
		print_message("this C library has no table of the old kind\n");
		close(fd);
		skip();
	}
	for (size_t i = 0; i < ARRAY_SIZE(some); i++) {
		struct elfsyms old = e;

		old.gnu_hash = 0;
		assert_int_equal(elfsyms_find(&e, some[i], &want), 0);
		assert_int_equal(elfsyms_find(&old, some[i], &got), 0);
		assert_memory_equal(&want, &got, sizeof(want));
		assert_int_equal(elfsyms_find(&old, "llama_decode", &got), -ENOENT);
		assert_int_equal(elfsyms_find(&old, "__tls_get_addr", &got), -ENOENT);
	}
	close(fd);
}

static void test_elfsyms__no_elf(void **state)
{
	char text[300];
	struct elfsyms e = { .fd = -7 };
	int fd = memfd_create("text", MFD_CLOEXEC),
	    dir = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	(void)state;
	assert_int_equal(elfsyms_open(fd, &e), -ENOEXEC);
	memset(text, 'x', sizeof(text));
	assert_int_equal(write(fd, text, sizeof(text)), sizeof(text));
	assert_int_equal(elfsyms_open(fd, &e), -ENOEXEC);
	assert_int_equal(elfsyms_open(dir, &e), -EISDIR);
	assert_int_equal(e.fd, -7);
	close(fd);
	close(dir);
}

/* ---- broken files ---- */

static uint8_t *read_whole(const char *path, size_t *ret_len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	uint8_t *p;

	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	p = malloc(st.st_size);
	assert_non_null(p);
	assert_int_equal(read(fd, p, st.st_size), st.st_size);
	close(fd);
	*ret_len = st.st_size;
	return p;
}

/* Whatever it answers, it answers, and claims no more than it was asked for. */
static void ask(int fd)
{
	static const char *const wanted[] = { "qsort", "rand", "llama_decode" };
	struct elfsyms e;
	Elf64_Sym s[3];
	Elf64_Shdr section;
	char buf[16];
	int n;

	if (elfsyms_open(fd, &e))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		if (!elfsyms_find(&e, wanted[i], &s[i]))
			elfsyms_read(&e, s[i].st_value, buf, sizeof(buf));
	}
	n = elfsyms_find_static(&e, wanted, 3, s);
	assert_in_range(n + 1000, 0, 1003);
	elfsyms_has_symtab(&e);
	elfsyms_section(&e, ".text", &section);
}

static void damage(int fd, uint64_t at, uint64_t with)
{
	uint64_t was;

	assert_int_equal(pread(fd, &was, 8, at), 8);
	assert_int_equal(pwrite(fd, &with, 8, at), 8);
	ask(fd);
	assert_int_equal(pwrite(fd, &was, 8, at), 8);
}

static void test_elfsyms__survives_damage(void **state)
{
	static const uint64_t values[] = { 0,
					   1,
					   0xff,
					   UINT64_MAX,
					   INT64_MAX,
					   0x8000000000000000,
					   0x0000ffff0000ffff,
					   0x7fffffff7fffffff };
	const struct link_map *map;
	int lib = open_libc(&map), fd = memfd_create("damaged", MFD_CLOEXEC);
	Elf64_Sym s;
	struct elfsyms e;
	size_t len;
	uint8_t *p = read_whole(map->l_name, &len);
	uint64_t places[4] = { 0 };

	(void)state;
	close(lib);
	assert_int_equal(write(fd, p, len), len);
	free(p);
	assert_int_equal(elfsyms_open(fd, &e), 0);
	assert_int_equal(elfsyms_find(&e, "qsort", &s), 0);	/* whole, it is found */
	for (size_t i = 0; i < e.n_phdrs; i++) {
		if (e.phdrs[i].p_type == PT_DYNAMIC)
			places[0] = e.phdrs[i].p_offset;
	}
	places[1] = e.gnu_hash; /* lies in the first segment: address and offset are the same */
	places[2] = e.symtab;
	places[3] = e.shoff;
	for (size_t v = 0; v < ARRAY_SIZE(values); v++) {
		for (uint64_t at = 0; at < 64 + 56 * 16; at += 4)
			damage(fd, at, values[v]);
		for (size_t k = 0; k < ARRAY_SIZE(places); k++) {
			for (uint64_t at = 0; at < 512; at += 4)
				damage(fd, places[k] + at, values[v]);
		}
	}
	for (size_t cut = len; cut > 64; cut -= cut / 5 + 1) {
		assert_int_equal(ftruncate(fd, cut), 0);
		ask(fd);
	}
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_elfsyms__find_static),
		cmocka_unit_test(test_elfsyms__find_static_oom),
		cmocka_unit_test(test_elfsyms__section),
		cmocka_unit_test(test_elfsyms__find_dynamic),
		cmocka_unit_test(test_elfsyms__find_by_old_hash),
		cmocka_unit_test(test_elfsyms__no_elf),
		cmocka_unit_test(test_elfsyms__survives_damage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
