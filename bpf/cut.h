/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which bytes of one read or write are kept. Plain arithmetic: tests compile it natively. */
#ifndef TL_CUT_H
#define TL_CUT_H

/* Of a call's `total` bytes, [0, head_end) and [tail_start, total) are
 * kept, one behind the other. */
struct cut {
	__u32 head_end, tail_start;
};

/* A range to copy: `len` bytes from offset `src` of the piece to offset `dst` of the kept bytes. */
struct cut_range {
	__u32 src, dst, len;
};

static inline __attribute__((always_inline)) struct cut cut_of(__u32 total, __u32 max_head,
								__u32 max_tail)
{
	struct cut c = { total, total };

	if (total > max_head + max_tail) {
		c.head_end = max_head;
		c.tail_start = total - max_tail;
	}
	return c;
}

/* What to copy of the piece [pos, pos + len) for the head. */
static inline __attribute__((always_inline)) struct cut_range cut_head(struct cut c, __u32 pos,
									__u32 len)
{
	struct cut_range r = { 0, pos, 0 };

	if (pos < c.head_end)
		r.len = len < c.head_end - pos ? len : c.head_end - pos;
	return r;
}

/* And for the tail. */
static inline __attribute__((always_inline)) struct cut_range cut_tail(struct cut c, __u32 pos,
									__u32 len)
{
	struct cut_range r = { 0, c.head_end, 0 };

	if (pos >= c.tail_start) {
		r.dst += pos - c.tail_start;
		r.len = len;
	} else if (len > c.tail_start - pos) {
		r.src = c.tail_start - pos;
		r.len = len - r.src;
	}
	return r;
}

#endif
