/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel names, each told once: a record then carries a number. One thread, no allocation. */
#ifndef TL_TARGET_NAMES_H
#define TL_TARGET_NAMES_H

#include <stdbool.h>
#include <stdint.h>

enum { MAX_NAMES = 8192, NAME_SLOTS = 2 * MAX_NAMES, NAME_BYTES = 128 };

struct names {
	uint32_t n, turn;
	struct name_slot {
		const char *ptr;
		uint32_t id;	/* 0: free */
		uint32_t turn;	/* in which the text at ptr was compared last */
	} by_ptr[NAME_SLOTS];
	uint32_t by_text[NAME_SLOTS];	/* id, 0: free */
	char text[MAX_NAMES + 1][NAME_BYTES];	/* of id */
};

void names__reset(struct names *n);
/* What is at an address may be another text by now: each is compared once again. */
void names__new_turn(struct names *n);

/* The number of a name; ret_new: it was not known before, and is to be told. 0: the table is
 * full. */
uint32_t names__id(struct names *n, const char *name, bool *ret_new);
void names__forget_last(struct names *n);	/* it could not be told */

#endif
