/* SPDX-License-Identifier: Apache-2.0 */
/* How an agent comes to a library that was started with the process, without tracing
 * it: see tl_ring.h, `knock`. */
#ifndef TL_TARGET_DOOR_H
#define TL_TARGET_DOOR_H

/* open: what to do with the ring when somebody knocks; 0 or -errno, which is told. Once
 * per process; 0 or -errno. */
int door__open(int (*open)(int memfd));

#endif
