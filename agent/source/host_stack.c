/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of stacks: what a thread did in a long run on a CPU. */
#include "base/str.h"
#include "source/code_rules.h"
#include "source/host_priv.h"
#include "source/images.h"
#include "source/pyframes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

enum {
	MAX_RUNS = 512,		/* threads that are in a sampled run */
	MAX_CODES = 8,		/* told apart in one run */
	MAX_CALLS = 64,		/* words of a stack that are looked at */
	CALL_BYTES = 8,		/* before a return address */
	MAX_PYTHON = 24,	/* frames */
	MAX_PYTHON_TRIES = 8,	/* to find an interpreter in a process */
};
static const uint64_t python_gap_ns = 40000000;	/* between two looks at the frames of one run */
/* Between samples; inside of one collection. */
static const uint64_t sample_ns = 10000000, max_pause_ns = 50000000;
static const uint64_t python_try_gap_ns = 300000000;

struct code {
	uint16_t code, n;
	char frame[64];
	uint64_t first_ns, last_ns;	/* samples */
};
struct run {			/* of one thread */
	uint64_t since_ns, end_ns;	/* end 0: under way */
	uint32_t tgid;
	uint64_t python_ns;	/* when its frames of Python were last read */
	struct code python;	/* and what they said; n 0: nothing */
	uint16_t n;		/* samples */
	size_t n_codes;
	struct code codes[MAX_CODES];
};

int host_stack_open(struct host *h)
{
	h->runs = map__new(sizeof(struct run), MAX_RUNS);
	h->files = image_files__new();
	return h->runs && h->files ? 0 : -ENOMEM;
}

void host_stack_close(struct host *h)
{
	map__free(h->runs);
	image_files__free(h->files);
}

/* ---- what is on the stack ---- */

/* A call instruction ends right before a return address. */
static bool ends_with_call(const uint8_t code[CALL_BYTES])
{
	if (code[CALL_BYTES - 5] == 0xe8)
		return true;
	/* call r/m64: ff /2, with 0, 1, 4, 5 or 6 bytes behind the ModR/M byte */
	for (int len = 2; len <= 7; len++)
		if (code[CALL_BYTES - len] == 0xff && (code[CALL_BYTES - len + 1] & 0x38) == 0x10)
			return true;
	return false;
}

/* Of the words on a stack those that are return addresses, by all that
 * shows. Returns their number. */
static size_t find_calls(struct images *m, pid_t pid, const struct tl_raw_stack *ev, uint64_t *ret)
{
	uint8_t code[MAX_CALLS][CALL_BYTES];
	struct iovec local[MAX_CALLS], remote[MAX_CALLS];
	int is_call[MAX_CALLS];		/* -1: to be read */
	size_t at[MAX_CALLS], n = 0, n_read = 0, kept = 0, i;
	ssize_t got;

	for (i = 0; i < ev->n_words && n < MAX_CALLS; i++) {
		if (ev->words[i] < CALL_BYTES || !images__has(m, ev->words[i]))
			continue;
		ret[n] = ev->words[i];
		is_call[n] = images__call(m, ret[n]);
		if (is_call[n] < 0) {
			local[n_read] = (struct iovec){ code[n_read], CALL_BYTES };
			remote[n_read] = (struct iovec){ (void *)(uintptr_t)(ret[n] - CALL_BYTES),
							 CALL_BYTES };
			at[n_read++] = n;
		}
		n++;
	}
	got = n_read ? process_vm_readv(pid, local, n_read, remote, n_read, 0) : 0;
	for (i = 0; got > 0 && i < (size_t)got / CALL_BYTES; i++) {
		is_call[at[i]] = ends_with_call(code[i]);
		images__note_call(m, ret[at[i]], is_call[at[i]]);
	}
	for (i = 0; i < n; i++)
		if (is_call[i] > 0)
			ret[kept++] = ret[i];
	return kept;
}

static void name_frame(struct code *c, const struct image_place *at)
{
	const char *name = at->function ? at->function : at->file;

	str_copy(c->frame, sizeof(c->frame), name);
}

/* Interpreters, the C library and the like are on every stack. */
static bool is_plain(const char *file)
{
	static const char *const parts[] = { "libc.so",	   "libc-",	"libpython", "python3",
					     "libpthread", "libstdc++", "ld-linux",  "libgcc",
					     "uvloop",	   "[vdso]",	"libm.so" };

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (strstr(file, parts[i]))
			return true;
	return false;
}

/* The innermost frame that tells something. */
static struct code judge(struct images *m, const struct tl_raw_stack *ev, uint64_t now_ns)
{
	struct code c = { .code = TL_CODE_OTHER };
	uint64_t calls[MAX_CALLS];
	struct image_place at;
	size_t n;

	if (!images__find(m, ev->ip, now_ns, &at)) {
		if (at.code >= 0) {
			c.code = at.code;
			name_frame(&c, &at);
			return c;
		}
		if (!is_plain(at.file))
			name_frame(&c, &at);
	}
	n = find_calls(m, ev->hdr.tgid, ev, calls);
	for (size_t i = 0; i < n; i++) {
		if (images__find(m, calls[i], now_ns, &at))
			continue;
		if (at.code >= 0) {
			c.code = at.code;
			name_frame(&c, &at);
			return c;
		}
		if (!c.frame[0] && !is_plain(at.file))
			name_frame(&c, &at);
	}
	if (!c.frame[0] && ev->hdr.flags & TL_STACK_KERNEL) {
		c.code = TL_CODE_KERNEL;
		str_copy(c.frame, sizeof(c.frame), "kernel");
	}
	return c;
}

/* ---- Python ---- */

void host_stack_forget(struct process *p)
{
	pyframes__free(p->python);
	images__free(p->images);
	p->python = NULL;
	p->images = NULL;
}

static void name_python(struct code *c, const struct pyframe *f)
{
	const char *file = strrchr(f->file, '/');

	snprintf(c->frame, sizeof(c->frame), "%.30s:%.32s", file ? file + 1 : f->file, f->function);
}

/* The innermost frame that tells something, else the innermost. n of the result
 * is 0 if nothing is known. */
static struct code ask_python(struct process *p, const struct tl_raw_stack *ev, uint64_t now_ns)
{
	struct code c = { .code = TL_CODE_OTHER };
	struct pyframe frames[MAX_PYTHON];
	bool gc = false;
	int n, code;

	/* A process that has just begun has not mapped it yet. */
	if (!p->python && p->n_python_tries < MAX_PYTHON_TRIES &&
	    now_ns - p->python_sought_ns > python_try_gap_ns) {
		p->python_sought_ns = now_ns;
		p->n_python_tries++;
		pyframes__new(p->tgid, p->images, now_ns, &p->python);
	}
	n = p->python ? pyframes__read(p->python, ev->hdr.tid, frames, MAX_PYTHON, &gc) : 0;
	if (n <= 0)
		return c;
	c.n = 1;
	if (gc) {
		c.code = TL_CODE_GC;
		str_copy(c.frame, sizeof(c.frame), "gc");
		return c;
	}
	name_python(&c, &frames[0]);
	for (int i = 0; i < n; i++) {
		code = code_of_python(frames[i].file, frames[i].function);
		if (code < 0)
			continue;
		c.code = code;
		name_python(&c, &frames[i]);
		break;
	}
	return c;
}

/* What native code does not tell. The agent comes a moment later than the sample: that counts only
 * if the thread has not slept meanwhile. */
static void add_python(struct host *h, struct process *p, const struct tl_raw_stack *ev,
		       uint64_t now_ns, struct run *r, struct code *c)
{
	if (!r->python_ns || now_ns - r->python_ns > python_gap_ns) {
		r->python_ns = now_ns;
		r->python = ask_python(p, ev, now_ns);
		if (r->python.n && !host_bpf_is_busy(h, ev->hdr.tid, r->since_ns))
			r->python.n = 0;
	}
	if (!r->python.n)
		return;
	*c = r->python;
	c->n = 0;
}

/* ---- runs ---- */

/* What says by its nature what was wrong is told with its times: a thread that
 * never sleeps does much else. */
static bool is_episode(const struct run *r, const struct code *c)
{
	return (c->code == TL_CODE_GC || c->code == TL_CODE_COMPILE || c->code == TL_CODE_GRAMMAR ||
		c->code == TL_CODE_METRICS) && c->n >= 3 && 4u * c->n < 3u * r->n;
}

static bool is_like(const struct code *a, const struct code *c, uint64_t ts_ns)
{
	if (a->code != c->code)
		return false;
	if (c->code == TL_CODE_GC)
		return ts_ns < a->last_ns + max_pause_ns;
	/* One name stands for all of a kind that has a meaning of its own. */
	return c->code != TL_CODE_OTHER || !strcmp(a->frame, c->frame);
}

/* Where there is no room left, what only has a name makes way for what tells something: the rarest
 * of those. NULL: there is none. */
static struct code *room_for(struct run *r, const struct code *c)
{
	struct code *rarest = NULL;

	if (r->n_codes < MAX_CODES)
		return &r->codes[r->n_codes++];
	for (size_t i = 0; i < MAX_CODES && c->code != TL_CODE_OTHER; i++) {
		struct code *k = &r->codes[i];

		if (k->code == TL_CODE_OTHER && (!rarest || k->n < rarest->n))
			rarest = k;
	}
	return rarest;
}

static void count(struct run *r, const struct code *c, uint64_t ts_ns)
{
	struct code *k = NULL;

	r->n++;
	for (size_t i = 0; i < r->n_codes && !k; i++)
		k = is_like(&r->codes[i], c, ts_ns) ? &r->codes[i] : NULL;
	if (!k) {
		k = room_for(r, c);
		if (!k)
			return;
		*k = *c;
		k->first_ns = ts_ns;
	}
	k->n++;
	k->last_ns = ts_ns;
}

/* Samples that say nothing do not count, if others do. */
static void drop_nameless(struct run *r)
{
	for (size_t i = 0; i < r->n_codes; i++) {
		struct code *c = &r->codes[i];

		if (c->code != TL_CODE_OTHER || c->frame[0] || c->n == r->n)
			continue;
		r->n -= c->n;
		*c = r->codes[--r->n_codes];
		return;
	}
}

/* It sleeps: says in which code it was until then. */
static int tell(struct host *h, const struct tl_raw_stack *end, const struct emit *out)
{
	struct run *at = map__get(h->runs, end->hdr.tid), r;
	struct thread *t;
	uint16_t n_alone = 0;
	int err = 0;

	if (!at)
		return 0;
	r = *at;
	if (r.since_ns != end->busy_since_ns || r.end_ns)
		return 0;
	at->end_ns = end->hdr.ts_ns;
	drop_nameless(&r);
	t = host_thread(h, end->hdr.tgid, end->hdr.tid);
	for (size_t i = 0; i < r.n_codes; i++)
		n_alone += is_episode(&r, &r.codes[i]) ? r.codes[i].n : 0;
	for (size_t i = 0; i < r.n_codes && !err; i++) {
		struct tl_code ev = {
			.hdr = { sizeof(ev), TL_CODE, 0, end->hdr.tgid, end->hdr.tid,
				 end->hdr.ts_ns },
			.since_ns = r.since_ns,
			.code = r.codes[i].code,
			.n_samples = r.codes[i].n,
			.of_samples = r.n - n_alone,
		};

		if (is_episode(&r, &r.codes[i])) {	/* up to a period longer than
							 * between its samples */
			ev.since_ns = r.codes[i].first_ns - sample_ns;
			ev.hdr.ts_ns = r.codes[i].last_ns;
			ev.of_samples = ev.n_samples;
		}

		if (ev.code == CODE_USUAL)
			continue;
		if (t && !t->told)
			err = host_tell_thread(h, end->hdr.tid, t, out);
		memcpy(ev.frame, r.codes[i].frame, sizeof(ev.frame));
		err = err ? err : emit(out, &ev.hdr);
	}
	return err;
}

static bool is_over(void *ctx, uint64_t tid, void *value)
{
	(void)ctx, (void)tid;
	return ((const struct run *)value)->end_ns;
}

uint32_t host_stack_busy(const struct host *h, uint32_t tgid, uint32_t tid, uint64_t since_ns,
			 uint64_t end_ns, uint64_t *ret_ns)
{
	uint64_t key, best_ns = (end_ns - since_ns) / 2;
	uint32_t best = 0;

	for (struct run *r = map__oldest(h->runs, &key); r; r = map__newer(h->runs, r, &key)) {
		uint64_t from = r->since_ns > since_ns ? r->since_ns : since_ns;
		uint64_t to = r->end_ns && r->end_ns < end_ns ? r->end_ns : end_ns;

		if (r->tgid != tgid || key == tid || to <= from || to - from <= best_ns)
			continue;
		best_ns = to - from;
		best = key;
	}
	*ret_ns = best_ns;
	return best;
}

static bool interprets(uint16_t code)
{
	return code == TL_CODE_GC || code == TL_CODE_REGEX || code == TL_CODE_JSON ||
	       code == TL_CODE_TEMPLATE || code == TL_CODE_METRICS;
}

int host_stack_take(struct host *h, const struct tl_raw_stack *ev, const struct emit *out)
{
	struct process *p = map__get(h->processes, ev->hdr.tgid);
	uint64_t now_ns = monotonic_ns();
	struct thread *t;
	struct code c;
	struct run *r;

	if (ev->hdr.flags & TL_STACK_END)
		return tell(h, ev, out);
	if (!p)
		return 0;
	if (!p->images)
		p->images = images__new(p->tgid, h->files);
	if (!p->images)
		return -ENOMEM;
	if (map__is_full(h->runs))
		map__sweep(h->runs, is_over, NULL);
	r = map__put(h->runs, ev->hdr.tid, NULL);
	if (!r)
		return 0;	/* full: this run has fewer samples */
	if (r->since_ns != ev->busy_since_ns)
		*r = (struct run){ .since_ns = ev->busy_since_ns, .tgid = ev->hdr.tgid };
	c = judge(p->images, ev, now_ns);
	if (c.code == CODE_USUAL && (!strcmp(p->role, "api") || !strcmp(p->role, "front")))
		c.code = TL_CODE_OTHER;		/* there it is not */
	if (c.code == TL_CODE_OTHER || c.code == TL_CODE_KERNEL)
		add_python(h, p, ev, now_ns, r, &c);
	count(r, &c, ev->hdr.ts_ns);
	t = interprets(c.code) ? host_thread(h, ev->hdr.tgid, ev->hdr.tid) : NULL;
	if (t)
		t->interprets = true;
	return 0;
}
