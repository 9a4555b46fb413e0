/* SPDX-License-Identifier: Apache-2.0 */
/* Symbols of an ELF file, by a few small reads: a host has hundreds of mapped files. */
#include "source/elfsyms.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	MAX_DYN = 256,			/* entries of the dynamic section that are looked at */
	MAX_SECTIONS = 4096,
	MAX_CHAIN = 4096,		/* symbols in one hash bucket */
	CHUNK_BYTES = 256 * 1024,
	MAX_NAME = 128,
};
static const uint64_t max_symtab_bytes = 256ull << 20;

static int read_at(int fd, void *buf, size_t len, uint64_t off)
{
	ssize_t n;

	if (off > INT64_MAX - len)
		return -ENOEXEC;
	n = pread(fd, buf, len, off);
	if (n < 0)
		return -errno;
	return (size_t)n == len ? 0 : -ENOEXEC;
}

int elfsyms_read(const struct elfsyms *e, uint64_t addr, void *buf, size_t len)
{
	for (size_t i = 0; i < e->n_phdrs; i++) {
		const Elf64_Phdr *p = &e->phdrs[i];

		if (p->p_type != PT_LOAD || addr < p->p_vaddr || addr - p->p_vaddr >= p->p_memsz)
			continue;
		if (len > p->p_filesz || addr - p->p_vaddr > p->p_filesz - len)
			return -ENODATA;
		return read_at(e->fd, buf, len, p->p_offset + (addr - p->p_vaddr));
	}
	return -ENODATA;
}

int elfsyms_code_offset(const struct elfsyms *e, uint64_t addr, uint64_t *ret)
{
	for (size_t i = 0; i < e->n_phdrs; i++) {
		const Elf64_Phdr *p = &e->phdrs[i];

		if (p->p_type != PT_LOAD || !(p->p_flags & PF_X) || addr < p->p_vaddr ||
		    addr - p->p_vaddr >= p->p_filesz)
			continue;
		*ret = addr - p->p_vaddr + p->p_offset;
		return 0;
	}
	return -ENOENT;
}

static int read_dynamic(struct elfsyms *e)
{
	Elf64_Dyn dyn[MAX_DYN];
	const Elf64_Phdr *p = NULL;
	size_t n;
	int err;

	for (size_t i = 0; i < e->n_phdrs; i++) {
		if (e->phdrs[i].p_type == PT_DYNAMIC)
			p = &e->phdrs[i];
	}
	if (!p)
		return 0;	/* static: only .symtab can tell */
	n = p->p_filesz / sizeof(dyn[0]);
	if (n > MAX_DYN)
		n = MAX_DYN;
	err = read_at(e->fd, dyn, n * sizeof(dyn[0]), p->p_offset);
	if (err)
		return err;
	for (size_t i = 0; i < n && dyn[i].d_tag != DT_NULL; i++) {
		switch (dyn[i].d_tag) {
		case DT_GNU_HASH: e->gnu_hash = dyn[i].d_un.d_ptr; break;
		case DT_HASH: e->hash = dyn[i].d_un.d_ptr; break;
		case DT_SYMTAB: e->symtab = dyn[i].d_un.d_ptr; break;
		case DT_STRTAB: e->strtab = dyn[i].d_un.d_ptr; break;
		case DT_STRSZ: e->strsz = dyn[i].d_un.d_val; break;
		}
	}
	return 0;
}

int elfsyms_open(int fd, struct elfsyms *ret)
{
	Elf64_Ehdr h;
	struct elfsyms e = { .fd = fd };
	int err;

	err = read_at(fd, &h, sizeof(h), 0);
	if (err)
		return err;
	if (memcmp(h.e_ident, ELFMAG, SELFMAG) || h.e_ident[EI_CLASS] != ELFCLASS64 ||
	    h.e_ident[EI_DATA] != ELFDATA2LSB || h.e_phentsize != sizeof(Elf64_Phdr))
		return -ENOEXEC;
	e.n_phdrs = h.e_phnum < ELFSYMS_MAX_PHDRS ? h.e_phnum : ELFSYMS_MAX_PHDRS;
	err = read_at(fd, e.phdrs, e.n_phdrs * sizeof(e.phdrs[0]), h.e_phoff);
	if (err)
		return err;
	e.shoff = h.e_shoff;
	e.n_sections = h.e_shnum;
	e.section_size = h.e_shentsize;
	e.names_section = h.e_shstrndx;
	err = read_dynamic(&e);
	if (err)
		return err;
	*ret = e;
	return 0;
}

/* ---- .dynsym, through its hash tables: GNU's, or the older one where a file has no other ---- */

static uint32_t gnu_hash(const char *name)
{
	uint32_t h = 5381;

	for (; *name; name++)
		h = h * 33 + (uint8_t)*name;
	return h;
}

static int check_symbol(const struct elfsyms *e, uint32_t index, const char *name, Elf64_Sym *ret)
{
	char got[MAX_NAME];
	size_t len = strlen(name) + 1;
	Elf64_Sym s;
	int err;

	err = elfsyms_read(e, e->symtab + (uint64_t)index * sizeof(s), &s, sizeof(s));
	if (err)
		return err;
	if (len > sizeof(got) || s.st_name > e->strsz || len > e->strsz - s.st_name)
		return -ENOENT;
	err = elfsyms_read(e, e->strtab + s.st_name, got, len);
	if (err)
		return err;
	if (memcmp(got, name, len) || s.st_shndx == SHN_UNDEF)
		return -ENOENT;
	*ret = s;
	return 0;
}

static uint32_t old_hash(const char *name)
{
	uint32_t h = 0;

	for (; *name; name++) {
		h = (h << 4) + (uint8_t)*name;
		h ^= h >> 24 & 0xf0;
	}
	return h & 0x0fffffff;
}

static int find_by_old_hash(const struct elfsyms *e, const char *name, Elf64_Sym *ret)
{
	uint32_t n[2], i;		/* n: of buckets, of symbols */
	int err = elfsyms_read(e, e->hash, n, sizeof(n));

	if (err || !n[0])
		return err ? err : -ENOENT;
	err = elfsyms_read(e, e->hash + 8 + 4ull * (old_hash(name) % n[0]), &i, 4);
	for (uint32_t len = 0; !err && i && i < n[1] && len < MAX_CHAIN; len++) {
		if (!check_symbol(e, i, name, ret))
			return 0;
		err = elfsyms_read(e, e->hash + 8 + 4ull * n[0] + 4ull * i, &i, 4);
	}
	return err ? err : -ENOENT;
}

int elfsyms_find(const struct elfsyms *e, const char *name, Elf64_Sym *ret)
{
	struct { uint32_t n_buckets, first, n_bloom, shift; } t;
	uint32_t h = gnu_hash(name), i, value;
	uint64_t word, buckets, mask;
	int err;

	if (!e->symtab || !e->strtab || (!e->gnu_hash && !e->hash))
		return -ENOENT;
	if (!e->gnu_hash)
		return find_by_old_hash(e, name, ret);
	err = elfsyms_read(e, e->gnu_hash, &t, sizeof(t));
	if (err)
		return err;
	if (!t.n_buckets || !t.n_bloom || t.shift > 31)
		return -ENOENT;
	err = elfsyms_read(e, e->gnu_hash + sizeof(t) + 8ull * (h / 64 % t.n_bloom), &word, 8);
	if (err)
		return err;
	mask = 1ull << h % 64 | 1ull << (h >> t.shift) % 64;
	if ((word & mask) != mask)
		return -ENOENT;
	buckets = e->gnu_hash + sizeof(t) + 8ull * t.n_bloom;
	err = elfsyms_read(e, buckets + 4ull * (h % t.n_buckets), &i, 4);
	if (err)
		return err;
	if (i < t.first)
		return -ENOENT;
	for (uint32_t n = 0; n < MAX_CHAIN; n++, i++) {
		err = elfsyms_read(e, buckets + 4ull * t.n_buckets + 4ull * (i - t.first), &value,
				   4);
		if (err)
			return err;
		if ((value | 1) == (h | 1) && !check_symbol(e, i, name, ret))
			return 0;
		if (value & 1)
			break;
	}
	return -ENOENT;
}

/* ---- sections ---- */

static int read_section(const struct elfsyms *e, uint16_t i, Elf64_Shdr *ret)
{
	return read_at(e->fd, ret, sizeof(*ret), e->shoff + (uint64_t)i * sizeof(*ret));
}

int elfsyms_section(const struct elfsyms *e, const char *name, Elf64_Shdr *ret)
{
	char got[MAX_NAME];
	size_t len = strlen(name) + 1;
	Elf64_Shdr s, names;
	int err;

	if (e->section_size != sizeof(s) || e->n_sections > MAX_SECTIONS ||
	    e->names_section >= e->n_sections || len > sizeof(got))
		return -ENOENT;
	err = read_section(e, e->names_section, &names);
	for (uint16_t i = 0; !err && i < e->n_sections; i++) {
		err = read_section(e, i, &s);
		if (err || s.sh_name > names.sh_size || len > names.sh_size - s.sh_name)
			continue;
		err = read_at(e->fd, got, len, names.sh_offset + s.sh_name);
		if (err || memcmp(got, name, len))
			continue;
		*ret = s;
		return 0;
	}
	return err ? err : -ENOENT;
}

/* ---- .symtab ---- */

static int find_symtab(const struct elfsyms *e, Elf64_Shdr *ret_syms, Elf64_Shdr *ret_strs)
{
	Elf64_Shdr s;
	int err;

	if (e->section_size != sizeof(s) || e->n_sections > MAX_SECTIONS)
		return -ENOENT;
	for (uint16_t i = 0; i < e->n_sections; i++) {
		err = read_section(e, i, &s);
		if (err)
			return err;
		if (s.sh_type != SHT_SYMTAB || s.sh_entsize != sizeof(Elf64_Sym))
			continue;
		if (s.sh_link >= e->n_sections || s.sh_size > max_symtab_bytes)
			return -ENOEXEC;
		*ret_syms = s;
		return read_section(e, s.sh_link, ret_strs);
	}
	return -ENOENT;
}

bool elfsyms_has_symtab(const struct elfsyms *e)
{
	Elf64_Shdr syms, strs;

	return !find_symtab(e, &syms, &strs);
}

/* First place in buf where name ends a string; a whole string is preferred to the tail of another,
 * which is what it is only if the linker let them share. Returns NULL, or sets *whole. */
static const char *find_name(const char *buf, size_t len, const char *name, bool *whole)
{
	const char *first = NULL, *p = buf;

	while ((p = memmem(p, buf + len - p, name, strlen(name) + 1))) {
		if (p > buf && !p[-1]) {
			*whole = true;
			return p;
		}
		first = first ? first : p;
		p++;
	}
	return first;
}

/* Offsets of names in .strtab, 0: not there. Few files have any of them, so the symbols are mostly
 * never read. */
static int find_names(const struct elfsyms *e, const Elf64_Shdr *strs, const char *const *names,
		      size_t n, char *buf, uint64_t *ret_at, size_t *ret_hits)
{
	uint64_t at = 0, left = strs->sh_size, whole_seen = 0;
	size_t keep = 0, hits = 0;
	int err;

	while (left) {
		size_t len = left < CHUNK_BYTES - keep ? left : CHUNK_BYTES - keep;

		err = read_at(e->fd, buf + keep, len, strs->sh_offset + at + keep);
		if (err)
			return err;
		left -= len;
		len += keep;
		for (size_t i = 0; i < n; i++) {
			bool whole = false;
			const char *p = whole_seen >> i & 1 ? NULL
							    : find_name(buf, len, names[i], &whole);

			if (!p || (ret_at[i] && !whole))
				continue;
			hits += !ret_at[i];
			ret_at[i] = at + (p - buf);
			whole_seen |= (uint64_t)whole << i;
		}
		keep = len < MAX_NAME ? len : MAX_NAME;	/* a name may lie across the cut */
		memmove(buf, buf + len - keep, keep);
		at += len - keep;
	}
	*ret_hits = hits;
	return 0;
}

/* Is it one of those whose names stand at at[]? Returns how many of these are found by it. */
static int match_symbol(const Elf64_Sym *s, const uint64_t *at, size_t n, Elf64_Sym *ret)
{
	int found = 0;

	for (size_t i = 0; i < n; i++) {
		if (!at[i] || s->st_name != at[i] || s->st_shndx == SHN_UNDEF)
			continue;
		found += !ret[i].st_name;
		ret[i] = *s;
	}
	return found;
}

static int match_symbols(const struct elfsyms *e, const Elf64_Shdr *syms, const uint64_t *at,
			 size_t n, void *buf, Elf64_Sym *ret)
{
	const Elf64_Sym *s = buf;
	const uint64_t chunk = CHUNK_BYTES / sizeof(*s) * sizeof(*s);	/* whole symbols */
	int found = 0, err;

	for (uint64_t off = 0; off < syms->sh_size; off += chunk) {
		uint64_t len = syms->sh_size - off;

		if (len > chunk)
			len = chunk;
		err = read_at(e->fd, buf, len, syms->sh_offset + off);
		if (err)
			return err;
		for (size_t k = 0; k < len / sizeof(*s); k++)
			found += match_symbol(&s[k], at, n, ret);
	}
	return found;
}

int elfsyms_find_static(const struct elfsyms *e, const char *const *names, size_t n, Elf64_Sym *ret)
{
	Elf64_Shdr syms, strs;
	uint64_t *at = NULL;
	size_t hits = 0;
	char *buf;
	int err;

	memset(ret, 0, n * sizeof(*ret));
	err = find_symtab(e, &syms, &strs);
	if (err)
		return err == -ENOENT ? 0 : err;
	if (strs.sh_size > max_symtab_bytes || n > 64)
		return -E2BIG;
	buf = malloc(CHUNK_BYTES);
	at = calloc(n, sizeof(*at));
	err = buf && at ? find_names(e, &strs, names, n, buf, at, &hits) : -ENOMEM;
	if (!err && hits)
		err = match_symbols(e, &syms, at, n, buf, ret);
	free(at);
	free(buf);
	return err;
}
