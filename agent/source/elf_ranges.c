/* SPDX-License-Identifier: Apache-2.0 */
/* Where in an ELF file the code of functions lies that code_rules.h knows. */
#include "source/elf_ranges.h"

#include "base/str.h"
#include "base/vec.h"
#include "source/code_rules.h"
#include "source/elfsyms.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	MAX_RANGES = 16384, MAX_SECTIONS = 4096, CHUNK = 4096,	/* symbols read at once */
	MAX_STRINGS = 48 << 20,
};
typedef VEC(struct elf_range) range_vec;

static int read_all(int fd, void *buf, size_t len, uint64_t off)
{
	ssize_t n = pread(fd, buf, len, off);

	return n < 0 || (size_t)n != len ? -ENOEXEC : 0;
}

static int read_section(const struct elfsyms *e, uint32_t i, Elf64_Shdr *ret)
{
	if (i >= e->n_sections || i >= MAX_SECTIONS || e->section_size != sizeof(*ret))
		return -ENOEXEC;
	return read_all(e->fd, ret, sizeof(*ret), e->shoff + (uint64_t)i * sizeof(*ret));
}

/* .symtab has all that .dynsym has, and more. */
static int find_symbols(const struct elfsyms *e, Elf64_Shdr *ret)
{
	Elf64_Shdr s;
	int err = -ENOENT;

	for (uint32_t i = 0; i < e->n_sections && i < MAX_SECTIONS; i++) {
		if (read_section(e, i, &s))
			return err;
		if ((s.sh_type != SHT_SYMTAB && s.sh_type != SHT_DYNSYM) ||
		    s.sh_entsize != sizeof(Elf64_Sym))
			continue;
		*ret = s;
		err = 0;
		if (s.sh_type == SHT_SYMTAB)
			break;
	}
	return err;
}

static int offset_of(const struct elfsyms *e, uint64_t addr, uint64_t *ret)
{
	for (size_t i = 0; i < e->n_phdrs; i++) {
		const Elf64_Phdr *p = &e->phdrs[i];

		if (p->p_type == PT_LOAD && addr >= p->p_vaddr && addr - p->p_vaddr < p->p_filesz) {
			*ret = addr - p->p_vaddr + p->p_offset;
			return 0;
		}
	}
	return -ENOENT;
}

static int add(range_vec *v, const struct elfsyms *e, const Elf64_Sym *s, const char *name)
{
	int code = code_of_symbol(name);
	struct elf_range *r;
	uint64_t start;

	if (code < 0 || offset_of(e, s->st_value, &start))
		return 0;
	r = vec_push(v, MAX_RANGES);
	if (!r)
		return v->n < MAX_RANGES ? -ENOMEM : 0;
	*r = (struct elf_range){ .start = start, .end = start + s->st_size, .code = code };
	str_copy_clean(r->name, sizeof(r->name), name, strlen(name));
	return 0;
}

static int read_symbols(const struct elfsyms *e, const Elf64_Shdr *sec, const char *strings,
			size_t n_bytes, range_vec *v)
{
	Elf64_Sym *syms = malloc(CHUNK * sizeof(*syms));
	int err = syms ? 0 : -ENOMEM;

	for (uint64_t at = 0; at < sec->sh_size && !err; at += CHUNK * sizeof(*syms)) {
		size_t left = sec->sh_size - at, n = CHUNK;

		if (left < CHUNK * sizeof(*syms))
			n = left / sizeof(*syms);
		if (read_all(e->fd, syms, n * sizeof(*syms), sec->sh_offset + at))
			break;
		for (size_t i = 0; i < n && !err; i++) {
			if (ELF64_ST_TYPE(syms[i].st_info) == STT_FUNC && syms[i].st_shndx &&
			    syms[i].st_size && syms[i].st_name < n_bytes)
				err = add(v, e, &syms[i], strings + syms[i].st_name);
		}
	}
	free(syms);
	return err;
}

static int by_start(const void *a, const void *b)
{
	const struct elf_range *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

int elf_ranges_read(int fd, struct elf_range **ret, size_t *ret_n)
{
	Elf64_Shdr syms, strs;
	range_vec v = { 0 };
	struct elfsyms e;
	char *strings;
	int err;

	*ret = NULL;
	*ret_n = 0;
	if (elfsyms_open(fd, &e) || find_symbols(&e, &syms) ||
	    read_section(&e, syms.sh_link, &strs) || !strs.sh_size || strs.sh_size > MAX_STRINGS)
		return 0;
	strings = malloc(strs.sh_size);
	if (!strings)
		return -ENOMEM;
	if (read_all(fd, strings, strs.sh_size, strs.sh_offset)) {
		free(strings);
		return 0;
	}
	strings[strs.sh_size - 1] = '\0';
	err = read_symbols(&e, &syms, strings, strs.sh_size, &v);
	free(strings);
	if (err) {
		vec_free(&v);
		return err;
	}
	if (v.n)
		qsort(v.v, v.n, sizeof(*v.v), by_start);
	*ret = v.v;
	*ret_n = v.n;
	return 0;
}

const struct elf_range *elf_ranges_at(const struct elf_range *r, size_t n, uint64_t offset)
{
	size_t lo = 0, hi = n;

	while (lo < hi) {	/* the first that starts behind it */
		size_t mid = lo + (hi - lo) / 2;

		if (r[mid].start <= offset)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo && offset < r[lo - 1].end ? &r[lo - 1] : NULL;
}
