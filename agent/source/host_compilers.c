/* SPDX-License-Identifier: Apache-2.0 */
/* Compilers that a followed process has started: it waits for code that is
 * used for the first time. */
#include "base/str.h"
#include "base/util.h"
#include "source/host_priv.h"

#include <errno.h>
#include <string.h>

enum { MAX_CHILDREN = 4096 };

struct child {			/* a compiler that runs */
	uint32_t owner;		/* tgid of the followed process that waits for it */
};

int host_compilers_open(struct host *h)
{
	h->children = map__new(sizeof(struct child), MAX_CHILDREN);
	return h->children ? 0 : -ENOMEM;
}

void host_compilers_close(struct host *h)
{
	map__free(h->children);
}

static bool is_compiler(const char *name)
{
	static const char *const names[] = {
		"g++",	  "gcc",       "c++",	   "cc",    "cc1",     "cc1plus", "as",	  "ld",
		"ld.lld", "collect2",  "lto1",	   "clang", "clang++", "nvcc",	  "cicc", "ptxas",
		"nvlink", "fatbinary", "cudafe++", "hipcc", "icpx",    "ninja",
	};
	size_t len = strcspn(name, "-");	/* g++-12 */

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strlen(names[i]) == len && !strncmp(name, names[i], len))
			return true;
	return false;
}

static int on_child_exec(struct host *h, const struct tl_raw_child *ev)
{
	struct process *p = map__get(h->processes, ev->owner);
	struct child *c;

	if (!p || map__get(h->children, ev->hdr.tgid) || !is_compiler(ev->name))
		return 0;
	c = map__put(h->children, ev->hdr.tgid, NULL);
	if (!c)
		return map__is_full(h->children) ? 0 : -ENOMEM;
	c->owner = ev->owner;
	if (p->n_compilers++)
		return 0;
	p->compile_since_ns = ev->hdr.ts_ns;
	memcpy(p->compiler, ev->name, sizeof(p->compiler));
	return 0;
}

/* The last one of a process has ended. */
static int tell(struct host *h, struct process *p, uint64_t ts_ns, const struct emit *out)
{
	struct thread *t = host_thread(h, p->tgid, p->tgid);
	struct tl_code ev = {
		.hdr = { sizeof(ev), TL_CODE, 0, p->tgid, p->tgid, ts_ns },
		.since_ns = p->compile_since_ns, .code = TL_CODE_COMPILE, .n_samples = 1,
		.of_samples = 1,
	};
	int err = t && !t->told ? host_tell_thread(h, p->tgid, t, out) : 0;

	str_copy(ev.frame, sizeof(ev.frame), p->compiler);
	return err ? err : emit(out, &ev.hdr);
}

static int on_child_exit(struct host *h, const struct tl_raw_child *ev, const struct emit *out)
{
	const struct child *c = map__get(h->children, ev->hdr.tgid);
	struct process *p = c ? map__get(h->processes, c->owner) : NULL;

	map__del(h->children, ev->hdr.tgid);
	if (!p || !p->n_compilers || --p->n_compilers)
		return 0;
	return tell(h, p, ev->hdr.ts_ns, out);
}

int host_compilers_take(struct host *h, const struct tl_raw_child *ev, const struct emit *out)
{
	return ev->what == TL_PROC_EXEC ? on_child_exec(h, ev) : on_child_exit(h, ev, out);
}

int host_compilers_end(struct host *h, uint64_t now_ns, const struct emit *out)
{
	int err = 0;

	for (struct process *p = map__oldest(h->processes, NULL); p && !err;
	     p = map__newer(h->processes, p, NULL)) {
		if (p->n_compilers)
			err = tell(h, p, now_ns, out);
		p->n_compilers = 0;
	}
	return err;
}
