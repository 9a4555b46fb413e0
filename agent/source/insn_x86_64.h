/* SPDX-License-Identifier: Apache-2.0 */
/* Where in a function a uprobe is cheap. Pure: looks at bytes of code only. */
#ifndef TL_INSN_X86_64_H
#define TL_INSN_X86_64_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct probe_place {
	uint8_t offset;		/* from the function's first byte */
	bool cheap;		/* the kernel emulates the instruction there: about 0.5 us a hit;
				 * else it is copied out and single-stepped: about 10 us in a VM */
	const char *insn;	/* the instruction there: "push", "jmp" ..., "other" */
};

/*
 * Picks the first cheap instruction that is always reached from the function's first byte, with the
 * first n_args (<= 6) integer arguments and the stack pointer as the caller left them: a return
 * probe may stand there too. If there is none near, gives offset 0 and cheap = false.
 */
void insn_x86_64_place(const uint8_t *code, size_t len, unsigned n_args, struct probe_place *ret);

#endif
