/* SPDX-License-Identifier: Apache-2.0 */
/* Names of functions as glibc 2.17 has them: a target's image may be that old, and a library that
 * wants more is not loaded there. */
#ifndef TL_TARGET_GLIBC_OLD_H
#define TL_TARGET_GLIBC_OLD_H

#if defined(__x86_64__)
#define TL_GLIBC_BASE "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define TL_GLIBC_BASE "GLIBC_2.17"
#endif

/* These moved into libc.so.6 with 2.34, under a new version; the old one is still there. */
#define TL_GLIBC_OLD(fn) __asm__(".symver " #fn "," #fn "@" TL_GLIBC_BASE)
#ifdef TL_GLIBC_BASE
TL_GLIBC_OLD(dlopen);
TL_GLIBC_OLD(dlsym);
TL_GLIBC_OLD(pthread_create);
TL_GLIBC_OLD(pthread_join);
TL_GLIBC_OLD(pthread_attr_setstacksize);
#endif

#endif
