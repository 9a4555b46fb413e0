/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Size of the set of bits by which most processes are told to be no target. */
#ifndef TL_TARGET_BITS_H
#define TL_TARGET_BITS_H

enum { N_TARGET_BITS = 4096 };

#endif
