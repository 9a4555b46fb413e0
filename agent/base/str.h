/* SPDX-License-Identifier: Apache-2.0 */
/* Bounded copies of strings, and the numbers that people type. */
#ifndef TL_STR_H
#define TL_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Copy into size > 0 bytes and fill the rest with zeros, so that records have no old bytes in them.
 * Return false if it had to be cut. */
bool str_copy(char *dst, size_t size, const char *src);
/* For strings that come off a wire: len bytes, anything but printable ASCII becomes '?'. */
bool str_copy_clean(char *dst, size_t size, const char *src, size_t len);

/* The name of a library, as short as it tells: of a Python extension its folder and module,
 * "msgspec/_core.so" for ".../msgspec/_core.cpython-311-x86_64-linux-gnu.so"; without the folder
 * where that says the same, is not known or makes it longer than 31 characters. Of all others
 * what is behind the last slash. Anything but printable ASCII becomes '?'. */
void str_library(char *dst, size_t size, const char *path);

/* A character as UTF-8: how many bytes were put, at most 4; no NUL. */
size_t utf8_put(char dst[4], uint32_t c);

/* Parse all of s. -EINVAL: not of that form; -ERANGE: does not fit. */
int str_parse_u64(const char *s, uint64_t *ret);	/* decimal, or 0x... */
/* "10s" "500ms" "1.5m"; "10": seconds */
int str_parse_duration(const char *s, uint64_t *ret_ns);
/* "4096" "4k" "16M" "1G": powers of 1024 */
int str_parse_size(const char *s, uint64_t *ret_bytes);

#endif
