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

/* A character as UTF-8: how many bytes were put, at most 4; no NUL. */
size_t utf8_put(char dst[4], uint32_t c);

/* Parse all of s. -EINVAL: not of that form; -ERANGE: does not fit. */
int str_parse_u64(const char *s, uint64_t *ret);	/* decimal, or 0x... */
/* "10s" "500ms" "1.5m"; "10": seconds */
int str_parse_duration(const char *s, uint64_t *ret_ns);
/* "4096" "4k" "16M" "1G": powers of 1024 */
int str_parse_size(const char *s, uint64_t *ret_bytes);

#endif
