/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A set of processes by the low bits of their tgid: most that are not in
 * it are told by one load. */
#ifndef TL_TARGET_BITS_H
#define TL_TARGET_BITS_H

/* Bit tgid % N_TARGET_BITS is set if the set may hold tgid; the map beside it knows for sure. */
enum { N_TARGET_BITS = 4096, N_TARGET_WORDS = N_TARGET_BITS / 64 };

#define TARGET_WORD(tgid) ((tgid) / 64 % N_TARGET_WORDS)
#define TARGET_BIT(tgid) (1ull << ((tgid) % 64))

#endif
