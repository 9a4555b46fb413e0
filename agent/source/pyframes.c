/* SPDX-License-Identifier: Apache-2.0 */
/* Where a thread of another process is in Python, read from outside: CPython 3.11 to 3.13. */
#include "source/pyframes.h"

#include "base/str.h"
#include "source/elfsyms.h"
#include "source/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { MAX_THREADS = 1024, MAX_WALK = 64, MAX_TEXT = 256,
       N_KNOWN = 256,		/* codes whose names are kept */
       MAX_SPAN = 256 };	/* bytes from one field of a struct to
				 * another that are read at once */

/* Offsets of fields in structs of the interpreter. */
struct layout {
	uint16_t interp_head;			/* _PyRuntimeState */
	uint16_t threads_head, gc_collecting;	/* PyInterpreterState */
	uint16_t next, native_id, frame;	/* PyThreadState; before 3.13
						 * `frame` is a _PyCFrame ... */
	uint16_t cframe_current;		/* ... that has the frame here */
	uint16_t code, previous;		/* _PyInterpreterFrame */
	uint16_t filename, qualname;		/* PyCodeObject */
	uint16_t length, text;			/* of a str of ASCII */
	bool has_cframe;
};
static const struct layout py311 = { 40, 16, 848, 8, 160, 56, 8, 32, 48, 112, 128, 16, 48, true };
static const struct layout py312 = { 40, 72, 312, 8, 144, 56, 0, 0, 8, 112, 128, 16, 40, true };

/* 3.13 says them itself, at the begin of _PyRuntime: index of each in 8-byte words. */
enum {
	W_COOKIE = 0, W_VERSION = 1, W_FREE_THREADED = 2, W_INTERP_HEAD = 5, W_THREADS_HEAD = 9,
	W_GC = 10, W_NEXT = 21, W_CURRENT_FRAME = 23, W_NATIVE_ID = 25, W_PREVIOUS = 29,
	W_CODE = 30, W_FILENAME = 35, W_QUALNAME = 37, W_LENGTH = 69, W_TEXT = 70,
	W_COLLECTING = 72, N_WORDS = 73,
};

/* What a PyCodeObject is called: each read is a system call, and the frames
 * of a thread hardly change. */
struct known {
	uint64_t code, filename, qualname;	/* addresses; code 0: none */
	struct pyframe frame;
};

struct pyframes {
	pid_t pid;
	uint64_t runtime;		/* address of _PyRuntime */
	struct layout l;
	pid_t tid;			/* asked for last, ... */
	uint64_t tstate;		/* ... and its PyThreadState */
	struct known known[N_KNOWN];	/* by address of the code */
};

static int read_mem(pid_t pid, uint64_t addr, void *buf, size_t len)
{
	struct iovec local = { buf, len }, remote = { (void *)(uintptr_t)addr, len };
	ssize_t n = process_vm_readv(pid, &local, 1, &remote, 1, 0);

	return n < 0 ? -errno : (size_t)n == len ? 0 : -EFAULT;
}

static int read_ptr(const struct pyframes *p, uint64_t addr, uint64_t *ret)
{
	return read_mem(p->pid, addr, ret, sizeof(*ret));
}

/* Two fields of a struct, mostly at once. */
static int read_two(const struct pyframes *p, uint64_t at, uint16_t a, uint16_t b, uint64_t *ret_a,
		    uint64_t *ret_b)
{
	uint16_t first = a < b ? a : b, span = (a < b ? b - a : a - b) + sizeof(uint64_t);
	char buf[MAX_SPAN];
	int err;

	if (span > sizeof(buf)) {
		err = read_ptr(p, at + a, ret_a);
		return err ? err : read_ptr(p, at + b, ret_b);
	}
	err = read_mem(p->pid, at + first, buf, span);
	if (err)
		return err;
	memcpy(ret_a, buf + (a - first), sizeof(*ret_a));
	memcpy(ret_b, buf + (b - first), sizeof(*ret_b));
	return 0;
}

/* ---- finding it ---- */

/* The address in the process of what the file has at `addr`. */
static uint64_t loaded_at(const struct elfsyms *e, const struct proc_map *map, uint64_t addr)
{
	for (size_t i = 0; i < e->n_phdrs; i++) {
		const Elf64_Phdr *p = &e->phdrs[i];

		if (p->p_type == PT_LOAD && map->offset + 4096 > p->p_offset &&
		    map->offset < p->p_offset + p->p_filesz && p->p_flags & PF_X)
			return addr + map->start - (map->offset - p->p_offset + p->p_vaddr);
	}
	return 0;
}

static uint64_t find_runtime(pid_t pid, const struct proc_map *map)
{
	static const char *const names[] = { "_PyRuntime" };
	struct elfsyms e;
	uint64_t at = 0;
	Elf64_Sym sym;
	char path[512];
	int fd = proc_open_map(pid, map, path, sizeof(path));

	if (fd < 0)
		return 0;
	if (!elfsyms_open(fd, &e) && (!elfsyms_find(&e, names[0], &sym) ||
				      elfsyms_find_static(&e, names, 1, &sym) == 1))
		at = loaded_at(&e, map, sym.st_value);
	close(fd);
	return at;
}

static int layout_of_313(const struct pyframes *p, struct layout *ret)
{
	uint64_t w[N_WORDS];
	int err = read_mem(p->pid, p->runtime, w, sizeof(w));

	if (err)
		return err;
	if (memcmp(&w[W_COOKIE], "xdebugpy", 8) || w[W_VERSION] >> 16 != 0x030d ||
	    w[W_FREE_THREADED])
		return -ENOENT;
	*ret = (struct layout){
		.interp_head = w[W_INTERP_HEAD], .threads_head = w[W_THREADS_HEAD],
		.gc_collecting = w[W_GC] + w[W_COLLECTING], .next = w[W_NEXT],
		.native_id = w[W_NATIVE_ID], .frame = w[W_CURRENT_FRAME], .code = w[W_CODE],
		.previous = w[W_PREVIOUS], .filename = w[W_FILENAME], .qualname = w[W_QUALNAME],
		.length = w[W_LENGTH], .text = w[W_TEXT],
	};
	return 0;
}

int pyframes__new(pid_t pid, struct images *images, uint64_t now_ns, struct pyframes **ret)
{
	struct proc_map map;
	struct pyframes *p;
	const char *version;
	int err;

	if (images__map_of(images, "libpython3.", now_ns, &map) &&
	    images__map_of(images, "python3.", now_ns, &map))
		return -ENOENT;
	version = strrchr(map.path, '/');
	version = version ? strstr(version, "python3.") : NULL;
	if (!version)
		return -ENOENT;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->pid = pid;
	p->runtime = find_runtime(pid, &map);
	err = p->runtime ? 0 : -ENOENT;
	if (!strncmp(version, "python3.11", 10))
		p->l = py311;
	else if (!strncmp(version, "python3.12", 10))
		p->l = py312;
	else
		err = err ? err : layout_of_313(p, &p->l);
	if (err) {
		free(p);
		return err;
	}
	*ret = p;
	return 0;
}

void pyframes__free(struct pyframes *p)
{
	free(p);
}

/* ---- threads ---- */

/* The number that a thread has in its own pid namespace. */
static uint64_t inner_tid(pid_t pid, pid_t tid)
{
	char path[64], line[256];
	uint64_t inner = tid;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/status", pid, tid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		if (strncmp(line, "NSpid:", 6))
			continue;
		for (char *at = line + 6, *end; ; at = end) {
			uint64_t v = strtoull(at, &end, 10);

			if (end == at)
				break;
			inner = v;
		}
	}
	if (f)
		fclose(f);
	return inner;
}

static int find_thread(struct pyframes *p, uint64_t interp, pid_t tid)
{
	uint64_t at, id, want = inner_tid(p->pid, tid);
	int err = read_ptr(p, interp + p->l.threads_head, &at);

	for (int i = 0; i < MAX_THREADS && !err && at; i++) {
		err = read_ptr(p, at + p->l.native_id, &id);
		if (!err && id == want) {
			p->tid = tid;
			p->tstate = at;
			return 0;
		}
		err = err ? err : read_ptr(p, at + p->l.next, &at);
	}
	return err ? err : -ENOENT;
}

/* ---- frames ---- */

/* A str of ASCII, its end if it is long; anything else than printable becomes '?'. */
static int read_text(const struct pyframes *p, uint64_t str, char *ret, size_t size)
{
	char buf[MAX_TEXT];
	uint64_t len, skip;
	int err = read_ptr(p, str + p->l.length, &len);

	if (err || len > 4096)
		return err ? err : -EFAULT;
	skip = len >= size ? len - (size - 1) : 0;
	len -= skip;
	if (len > sizeof(buf))
		return -EFAULT;
	err = len ? read_mem(p->pid, str + p->l.text + skip, buf, len) : 0;
	if (!err)
		str_copy_clean(ret, size, buf, len);
	return err;
}

/* Another code at the same address has other names, by all that shows. */
static int read_code(struct pyframes *p, uint64_t code, struct pyframe *ret)
{
	struct known *k = &p->known[code / 16 % N_KNOWN];
	uint64_t file, function;
	int err = read_two(p, code, p->l.filename, p->l.qualname, &file, &function);

	if (err)
		return err;
	if (k->code != code || k->filename != file || k->qualname != function) {
		k->code = 0;
		err = read_text(p, file, k->frame.file, sizeof(k->frame.file));
		err = err ? err
			  : read_text(p, function, k->frame.function, sizeof(k->frame.function));
		if (err)
			return err;
		k->code = code;
		k->filename = file;
		k->qualname = function;
	}
	*ret = k->frame;
	return 0;
}

static int first_frame(const struct pyframes *p, uint64_t *ret)
{
	uint64_t at;
	int err = read_ptr(p, p->tstate + p->l.frame, &at);

	if (!err && p->l.has_cframe && at)
		err = read_ptr(p, at + p->l.cframe_current, &at);
	*ret = at;
	return err;
}

int pyframes__read(struct pyframes *p, pid_t tid, struct pyframe *ret, size_t max, bool *ret_gc)
{
	uint64_t interp, frame, code;
	int32_t collecting = 0;
	size_t n = 0;
	int err = read_ptr(p, p->runtime + p->l.interp_head, &interp);

	if (!err && p->tid != tid)
		err = find_thread(p, interp, tid);
	err = err ? err : first_frame(p, &frame);
	if (err) {
		p->tid = 0;
		return err;
	}
	if (!read_mem(p->pid, interp + p->l.gc_collecting, &collecting, sizeof(collecting)))
		*ret_gc = collecting == 1;
	for (int i = 0; i < MAX_WALK && n < max && frame; i++) {
		if (read_two(p, frame, p->l.code, p->l.previous, &code, &frame) || !code)
			break;
		/* Frames of the interpreter itself have no code of Python's: they are left out. */
		n += !read_code(p, code, &ret[n]);
	}
	return n;
}
