/* SPDX-License-Identifier: Apache-2.0 */
/* Where in an ELF file the code of functions lies that code_rules.h knows. */
#ifndef TL_SOURCE_ELF_RANGES_H
#define TL_SOURCE_ELF_RANGES_H

#include <stddef.h>
#include <stdint.h>

struct elf_range {
	uint64_t start, end;	/* offsets in the file */
	uint16_t code;		/* as code_of_symbol */
	char name[38];		/* cut */
};

/* Reads them, in order, from .symtab, or from .dynsym if the file was stripped; *ret is to be
 * freed. A file that is no ELF file has none. 0 or -ENOMEM. */
int elf_ranges_read(int fd, struct elf_range **ret, size_t *ret_n);
/* The one that holds this offset; NULL: none. */
const struct elf_range *elf_ranges_at(const struct elf_range *r, size_t n, uint64_t offset);

#endif
