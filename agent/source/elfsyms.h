/* SPDX-License-Identifier: Apache-2.0 */
/* Symbols of one 64-bit little-endian ELF file: is a name there, and what does its datum hold.
 * Reads with pread only: the file belongs to a stranger and may shrink under us. */
#ifndef TL_ELFSYMS_H
#define TL_ELFSYMS_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ELFSYMS_MAX_PHDRS = 64 };

/* Plain values, no ownership: the caller keeps the file open. */
struct elfsyms {
	int fd;
	uint16_t n_phdrs;
	Elf64_Phdr phdrs[ELFSYMS_MAX_PHDRS];
	uint64_t gnu_hash, hash, symtab, strtab, strsz; /* addresses of the dynamic
							 * section, 0: none */
	uint64_t shoff;
	uint16_t n_sections, section_size, names_section;
};

/* -ENOEXEC: not an ELF file of the kind above. Other -errno: unreadable. */
int elfsyms_open(int fd, struct elfsyms *ret);

/* Looks for a *defined* symbol in .dynsym. -ENOENT: not there. */
int elfsyms_find(const struct elfsyms *e, const char *name, Elf64_Sym *ret);

/* Looks for n names among the defined symbols of .symtab; sets ret[i].st_name to 0 for those that
 * are not there. Returns how many are, 0 also for a file without .symtab, or -errno. */
int elfsyms_find_static(const struct elfsyms *e, const char *const *names, size_t n,
			Elf64_Sym *ret);

/* Was the file not stripped? */
bool elfsyms_has_symtab(const struct elfsyms *e);

/* The section of that name. -ENOENT: there is none. */
int elfsyms_section(const struct elfsyms *e, const char *name, Elf64_Shdr *ret);

/* Where in the file the code at an address lies. -ENOENT: it is no code, or not in the file. */
int elfsyms_code_offset(const struct elfsyms *e, uint64_t addr, uint64_t *ret);

/* Reads what the file holds for an address: initialised data and code. -ENODATA: nothing (.bss). */
int elfsyms_read(const struct elfsyms *e, uint64_t addr, void *buf, size_t len);

#endif
