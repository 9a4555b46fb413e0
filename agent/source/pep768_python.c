/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the main thread of a CPython 3.14 in another process, and asks it to run a script. */
#include "source/pep768_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "source/elfsyms.h"
#include "source/gpu_tids.h"
#include "source/proc.h"

enum { MAX_INTERPRETERS = 64, PAGE = 4096 };

/*
 * Bits of the lowest byte of a thread's eval_breaker. One asks for what we want. Others may be set
 * by threads of the target between our reading the byte and our writing it, and would be lost: to
 * set them ourselves has each of these looked into, and nothing found. Not so the one by which
 * another thread asks for the GIL: a thread that finds it set waits until another one has had the
 * GIL, for ever if there is none. It must not be written, not even as it was read: it may have been
 * answered since. Who asked, asks again after 5 ms; and a request for the garbage collector that is
 * lost is made again at the next object.
 */
enum { BREAK_GIL = 1 << 0, BREAK_SIGNALS = 1 << 1, BREAK_CALLS = 1 << 2, BREAK_EXCEPTION = 1 << 3, BREAK_STOP = 1 << 5 };

static int read_mem(const struct pep768_python *p, uint64_t at, void *buf, size_t len)
{
	ssize_t n = at > INT64_MAX ? -1 : pread(p->mem, buf, len, at);

	return n == (ssize_t)len ? 0 : -EFAULT;
}

static int write_mem(const struct pep768_python *p, uint64_t at, const void *buf, size_t len)
{
	ssize_t n = at > INT64_MAX ? -1 : pwrite(p->mem, buf, len, at);

	return n == (ssize_t)len ? 0 : -EFAULT;
}

/* ---- who ---- */

struct search {
	pid_t pid;
	struct pep768_python *p;
	uint64_t runtime;
	char *why;
};

/* Where in the process lies what the file has at an address; 0: not known. */
static uint64_t loaded_at(const struct elfsyms *e, const struct proc_map *m, uint64_t addr)
{
	for (size_t i = 0; i < e->n_phdrs; i++) {
		const Elf64_Phdr *h = &e->phdrs[i];

		if (h->p_type == PT_LOAD && h->p_flags & PF_X && (h->p_offset & -PAGE) == m->offset)
			return addr - (h->p_vaddr & -PAGE) + m->start;
	}
	return 0;
}

static int on_map(void *ctx, const struct proc_map *m)
{
	const char *name = strrchr(m->path, '/');
	struct search *s = ctx;
	uint8_t table[PEP768_TABLE_BYTES];
	struct elfsyms e;
	Elf64_Shdr section;
	char path[512];
	uint64_t at = 0;
	int fd, err;

	if (!name || !strstr(name, "python"))
		return 0;
	fd = proc_open_map(s->pid, m, path, sizeof(path));
	if (fd < 0)
		return 0;
	if (!elfsyms_open(fd, &e) && !elfsyms_section(&e, ".PyRuntime", &section))
		at = loaded_at(&e, m, section.sh_addr);
	close(fd);
	if (!at || read_mem(s->p, at, table, sizeof(table)))
		return 0;
	err = pep768_layout__parse(table, sizeof(table), section.sh_size, &s->p->l, s->why);
	s->runtime = at;
	return err == -ENOENT ? 0 : err ? err : 1;
}

static int find_main_interpreter(const struct search *s, uint64_t *ret)
{
	const struct pep768_python *p = s->p;
	uint64_t at, id = 1;

	if (read_mem(p, s->runtime + p->l.interpreters_head, &at, sizeof(at)))
		return -EFAULT;
	for (int i = 0; i < MAX_INTERPRETERS && at; i++) {	/* the newest comes first */
		if (read_mem(p, at + p->l.id, &id, sizeof(id)))
			return -EFAULT;
		if (!id) {
			*ret = at;
			return 0;
		}
		if (read_mem(p, at + p->l.next, &at, sizeof(at)))
			return -EFAULT;
	}
	return -EFAULT;
}

static int find_thread(struct search *s)
{
	struct pep768_python *p = s->p;
	uint64_t ending = 0, interp = 0, its_interp = 0, native_id = 0;
	int32_t may_debug = 0;
	int err = read_mem(p, s->runtime + p->l.finalizing, &ending, sizeof(ending));

	if (!err && ending) {
		snprintf(s->why, 96, "its Python is about to end");
		return -EAGAIN;
	}
	err = err ? err : find_main_interpreter(s, &interp);
	err = err ? err : read_mem(p, interp + p->l.threads_main, &p->thread, sizeof(p->thread));
	if (!err && !p->thread) {
		snprintf(s->why, 96, "its main thread is not at work for its Python");
		return -EAGAIN;
	}
	/* What has these two in their places is the thread of that number: all the rest is
	 * where it should be, too. */
	err = err ? err : read_mem(p, p->thread + p->l.interp, &its_interp, sizeof(its_interp));
	err = err ? err : read_mem(p, p->thread + p->l.native_id, &native_id, sizeof(native_id));
	err = err ? err : read_mem(p, interp + p->l.may_debug, &may_debug, sizeof(may_debug));
	if (err || its_interp != interp || native_id != gpu_tids_inside(s->pid, s->pid)) {
		snprintf(s->why, 96, "the main thread of its Python is not to be found");
		return -EPROTO;
	}
	if (may_debug != 1) {
		snprintf(s->why, 96, "its Python was told to take no scripts (PYTHON_DISABLE_REMOTE_DEBUG, or so)");
		return -EPERM;
	}
	return 0;
}

int pep768_python__find(pid_t pid, int mem, struct pep768_python *ret, char why[96])
{
	struct pep768_python p = { .mem = mem };
	struct search s = { .pid = pid, .p = &p, .why = why };
	int err = proc_each_exec_map(pid, on_map, &s);

	if (err >= 0)
		err = err ? find_thread(&s) : -ENOENT;
	if (err)
		return err;
	*ret = p;
	return 0;
}

/* ---- what it is asked ---- */

static int read_pending(const struct pep768_python *p, int32_t *ret)
{
	return read_mem(p, p->thread + p->l.pending, ret, sizeof(*ret));
}

static int write_pending(const struct pep768_python *p, int32_t value)
{
	return write_mem(p, p->thread + p->l.pending, &value, sizeof(value));
}

/* Of somebody of ours who was killed: nobody else is here, /proc/PID/mem is locked. */
static bool is_left_behind(const struct pep768_python *p)
{
	char path[sizeof(PEP768_FOLDER) - 1];

	return !read_mem(p, p->thread + p->l.path, path, sizeof(path)) &&
	       !memcmp(path, PEP768_FOLDER, sizeof(path));
}

int pep768_python__ask(const struct pep768_python *p, const char *path)
{
	size_t len = strlen(path) + 1;
	int32_t pending = 0;
	uint8_t breaker = 0;
	int err = read_pending(p, &pending);

	if (!err && len > p->l.path_bytes)
		err = -ENAMETOOLONG;
	if (!err && pending && !is_left_behind(p))
		err = -EBUSY;
	if (!err && pending)
		err = write_pending(p, 0);
	err = err ? err : write_mem(p, p->thread + p->l.path, path, len);
	err = err ? err : write_pending(p, 1);
	err = err ? err : read_mem(p, p->thread + p->l.eval_breaker, &breaker, 1);
	if (err)
		return err;
	breaker = (breaker & ~BREAK_GIL) | BREAK_SIGNALS | BREAK_CALLS | BREAK_EXCEPTION |
		  BREAK_STOP;
	return write_mem(p, p->thread + p->l.eval_breaker, &breaker, 1);
}

void pep768_python__forget_path(const struct pep768_python *p)
{
	static const char zeros[sizeof(((struct pep768_hand *)0)->script)];

	if (is_left_behind(p))
		write_mem(p, p->thread + p->l.path, zeros, sizeof(zeros));
}

int pep768_python__take_back(const struct pep768_python *p)
{
	int32_t pending = 0;
	int err = read_pending(p, &pending);

	if (err || !pending)
		return err;
	err = write_pending(p, 0);
	/* It may be taken just now, and the path be copied next: an empty one is left alone. */
	pep768_python__forget_path(p);
	return err ? err : 1;
}
