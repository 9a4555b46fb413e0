/* SPDX-License-Identifier: Apache-2.0 */
/* What must be known of a process before a library is brought into it, and
 * the reasons not to do it. */
#include "source/inject_priv.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "source/elfsyms.h"
#include "source/proc.h"

enum { PAGE = 4096 };

static int refuse(char why[160], int err, const char *format, ...) __attribute__((format(printf, 3, 4)));
static int refuse(char why[160], int err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, 160, format, args);
	va_end(args);
	return err;
}

/* ---- /proc/PID/status, environ, exe ---- */

static long status_of(pid_t pid, const char *key)
{
	char path[64], line[256];
	size_t len = strlen(key);
	long value = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "re");
	if (!f)
		return -1;
	while (value < 0 && fgets(line, sizeof(line), f)) {
		if (!strncmp(line, key, len) && line[len] == ':')
			value = strtol(line + len + 1, NULL, 10);
	}
	fclose(f);
	return value;
}

static int check_status(pid_t pid, enum inject_way way, char why[160])
{
	long tracer = status_of(pid, "TracerPid"), seccomp = status_of(pid, "Seccomp"), yama = 0;
	FILE *f = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");

	if (f) {
		if (fscanf(f, "%ld", &yama) != 1)
			yama = 0;
		fclose(f);
	}
	if (tracer < 0)
		return refuse(why, -ESRCH, "no process %d", pid);
	if (yama >= 3)
		return refuse(why, -EPERM, "this kernel forbids tracing (kernel.yama.ptrace_scope is 3)");
	if (tracer && way == INJECT_BY_PTRACE)
		return refuse(why, -EBUSY, "process %d is traced by process %ld", pid, tracer);
	if (seccomp == SECCOMP_MODE_STRICT)
		return refuse(why, -EPERM, "process %d runs under strict seccomp", pid);
	return 0;
}

/* The name of its loader tells, whatever the file is called that it leads to. */
static bool wants_musl(int exe)
{
	struct elfsyms e;
	char name[256];
	ssize_t n = 0;

	if (elfsyms_open(exe, &e))
		return false;
	for (size_t i = 0; i < e.n_phdrs && n <= 0; i++)
		if (e.phdrs[i].p_type == PT_INTERP)
			n = pread(exe, name, sizeof(name) - 1, e.phdrs[i].p_offset);
	name[n > 0 ? n : 0] = 0;
	return strstr(name, "/ld-musl") != NULL;
}

/* ---- what it may still have ---- */

enum {
	FILES = 3,		/* two memfds, and what dlopen() opens */
	FILES_IF_THERE = 1,	/* the ring */
	FILES_OF_SCRIPT = 5,	/* the script and its socket, too */
	MAP_MB = 36,		/* the ring, CUPTI's buffers, two stacks, the library */
	DATA_MB = 20,		/* ... without the ring */
};

/* Soft limit of that name in /proc/PID/limits, -1: none, or not known. */
static long limit_of(pid_t pid, const char *name, long *ret_hard)
{
	char path[64], line[256], soft[32] = "", hard[32] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/limits", pid);
	f = fopen(path, "re");
	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f)) {
		if (!strncmp(line, name, strlen(name))) {
			sscanf(line + strlen(name), "%31s %31s", soft, hard);
			break;
		}
	}
	fclose(f);
	*ret_hard = *hard >= '0' && *hard <= '9' ? strtol(hard, NULL, 10) : -1;
	return *soft >= '0' && *soft <= '9' ? strtol(soft, NULL, 10) : -1;
}

static int check_files(pid_t pid, int needed, char why[160])
{
	long hard = -1, limit = limit_of(pid, "Max open files", &hard), n = 0, more;
	char path[64], above[32];
	struct dirent *d;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = limit < 0 ? NULL : opendir(path);
	if (!dir)
		return 0;
	while ((d = readdir(dir)))
		n += *d->d_name != '.' && atol(d->d_name) < limit;
	closedir(dir);
	if (limit - n >= needed)
		return 0;
	more = limit < 64 ? 128 : 2 * limit;
	snprintf(above, sizeof(above), "%ld", more);
	return refuse(why, -EMFILE,
		      "process %d has %ld of %ld descriptors open, and %d more are needed (prlimit "
		      "--pid %d --nofile=%ld:%s)",
		      pid, n, limit, needed, pid, more, hard >= 0 && hard < more ? above : "");
}

static int check_memory(pid_t pid, char why[160])
{
	static const struct { const char *limit, *used, *what, *option; long mb; } rows[] = {
		{ "Max address space", "VmSize", "map", "as", MAP_MB },
		{ "Max data size", "VmData", "allocate", "data", DATA_MB },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		long hard, limit = limit_of(pid, rows[i].limit, &hard);
		long used = status_of(pid, rows[i].used) * 1024;
		long left_mb = limit > used ? (limit - used) >> 20 : 0;

		if (limit >= 0 && left_mb < rows[i].mb)
			return refuse(why, -ENOMEM,
				      "process %d may %s %ld MB more, and needs %ld (prlimit --pid %d "
				      "--%s=%ld:)",
				      pid, rows[i].what, left_mb, rows[i].mb, pid, rows[i].option,
				      used + (2 * rows[i].mb << 20));
	}
	return 0;
}

static int check_room(const struct inject_target *t, enum inject_way way, char why[160])
{
	int files = way == INJECT_BY_SCRIPT ? FILES_OF_SCRIPT : t->start ? FILES_IF_THERE : FILES;
	int err = check_files(t->pid, files, why);

	return err ? err : check_memory(t->pid, why);
}

int inject_target__explain(const struct inject_target *t, int err, char why[160])
{
	int scarce;

	if (err != -EMFILE && err != -ENFILE && err != -ENOMEM && err != -EAGAIN && err != -ELIBACC)
		return err;
	scarce = check_room(t, INJECT_BY_PTRACE, why);
	if (scarce)
		return scarce;
	if (err == -EMFILE)
		refuse(why, err, "a thread of process %d has no descriptor free", t->pid);
	else if (err == -ENFILE)
		refuse(why, err, "this host has no file free for process %d (sysctl fs.file-max)",
		       t->pid);
	else if (err == -ENOMEM)
		refuse(why, err,
		       "process %d gets no memory (memory.max of its cgroup, vm.max_map_count, "
		       "vm.overcommit_memory)",
		       t->pid);
	else if (err == -EAGAIN)
		refuse(why, err,
		       "process %d may not have another thread (ulimit -u, pids.max of its cgroup)",
		       t->pid);
	return err;
}

static int check_exe(pid_t pid, enum inject_way way, char why[160])
{
	Elf64_Ehdr h;
	char path[64];
	bool musl;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/exe", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return refuse(why, -errno, "cannot read the program of process %d: %s", pid, strerror(errno));
	n = pread(fd, &h, sizeof(h), 0);
	musl = wants_musl(fd);
	close(fd);
	if (n == sizeof(h) && !memcmp(h.e_ident, ELFMAG, SELFMAG) && h.e_ident[EI_CLASS] == ELFCLASS32)
		return refuse(why, -ENOTSUP, "process %d is a 32-bit program: there is no library for such", pid);
	if (n != sizeof(h) || memcmp(h.e_ident, ELFMAG, SELFMAG) || !inject_arch__elf(h.e_machine))
		return refuse(why, -ENOTSUP, "process %d is a program for another kind of processor", pid);
	if (musl)
		return refuse(why, -ENOTSUP, "process %d uses musl: libraries for glibc do not load there", pid);
	if (way == INJECT_BY_PTRACE && !inject_arch__supported())
		return refuse(why, -ENOTSUP, "this processor does not save its registers by XSAVE");
	return 0;
}

static int check_env(pid_t pid, char why[160])
{
	static const char key[] = "CUDA_INJECTION64_PATH=";
	char path[64], *item = NULL;
	size_t size = 0;
	int err = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/environ", pid);
	f = fopen(path, "re");
	if (!f)
		return refuse(why, -errno, "cannot read the environment of process %d: %s", pid, strerror(errno));
	while (!err && getdelim(&item, &size, 0, f) > 0) {
		if (!strncmp(item, key, sizeof(key) - 1) && item[sizeof(key) - 1] &&
		    !strstr(item, "libtokenlag.so"))
			err = refuse(why, -EBUSY, "another profiler is in place: CUDA_INJECTION64_PATH is %.100s",
				     item + sizeof(key) - 1);
	}
	free(item);
	fclose(f);
	return err;
}

/* ---- its libraries ---- */

struct look {
	struct inject_target *t;
	int library;
	char *why;
	bool libc, loader, musl;
};

static uint64_t find(const struct elfsyms *e, uint64_t bias, const char *name)
{
	Elf64_Sym s;

	if (elfsyms_find(e, name, &s) || ELF64_ST_TYPE(s.st_info) != STT_FUNC)
		return 0;
	return bias + s.st_value;
}

static const Elf64_Phdr *code_of(const struct elfsyms *e, const struct proc_map *m)
{
	for (size_t i = 0; i < e->n_phdrs; i++) {
		const Elf64_Phdr *p = &e->phdrs[i];

		if (p->p_type == PT_LOAD && p->p_flags & PF_X && (p->p_offset & -PAGE) == m->offset)
			return p;
	}
	return NULL;
}

/* The end of the last page of its code, if nobody uses that: zeros, or what we have left there. */
static void find_cave(struct inject_target *t, const Elf64_Phdr *p, uint64_t bias, const struct proc_map *m)
{
	uint64_t at = (bias + p->p_vaddr + p->p_filesz + 63) & ~63ull, room = m->end - at;
	uint8_t bytes[PAGE];

	if (t->cave || at >= m->end || room > PAGE || room < inject_arch__code_bytes() || p->p_filesz != p->p_memsz)
		return;
	if (pread(t->mem, bytes, room, at) != (ssize_t)room)
		return;
	for (size_t i = 0; i < inject_arch__code_bytes() && !inject_arch__is_ours(bytes); i++) {
		if (bytes[i])
			return;
	}
	t->left_behind = inject_arch__is_ours(bytes);
	t->cave = at;
	t->cave_bytes = inject_arch__code_bytes();
}

static bool same_file(int a, int b)
{
	uint8_t x[16384], y[16384];
	ssize_t n;
	off_t at = 0;

	do {
		n = pread(a, x, sizeof(x), at);
		if (n < 0 || pread(b, y, sizeof(y), at) != n || memcmp(x, y, n))
			return false;
		at += n;
	} while (n);
	return true;
}

static int on_map(void *ctx, const struct proc_map *m)
{
	static const char *const others[] = { "libToolsInjection", "libparcagpu", "libcuinj64", "libTreeLauncher",
					      "libsanitizer-collection", "librocprof" };
	const char *name = strrchr(m->path, '/') + 1;
	struct look *l = ctx;
	struct inject_target *t = l->t;
	const Elf64_Phdr *code;
	struct elfsyms e;
	char path[300];
	uint64_t bias;
	bool ours = strstr(name, "libtokenlag.so"), libc = !strncmp(name, "libc.so.", 8) ||
	     !strncmp(name, "libc-2.", 7), loader = !strncmp(name, "ld-", 3), dl = !strncmp(name, "libdl", 5);
	int fd;

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		if (strstr(name, others[i]))
			return refuse(l->why, -EBUSY, "another profiler is in place: %.100s", name);
	}
	l->musl |= !strncmp(name, "ld-musl", 7) || !strncmp(name, "libc.musl", 9);
	if (!ours && !libc && !loader && !dl)
		return 0;
	fd = proc_open_map(t->pid, m, path, sizeof(path));
	if (fd < 0)
		return 0;
	if (!elfsyms_open(fd, &e) && (code = code_of(&e, m))) {
		bias = m->start - (code->p_vaddr & -PAGE);
		if (loader) {
			l->loader = true;
			t->ld_start = m->start;
			t->ld_end = m->end;
		}
		if (libc) {
			l->libc = true;
			t->errno_location = find(&e, bias, "__errno_location");
			find_cave(t, code, bias, m);
		}
		if ((libc || dl) && !t->dlopen) {
			t->dlopen = find(&e, bias, "dlopen");
			t->dlsym = find(&e, bias, "dlsym");
		}
		if (ours) {
			t->n_libraries++;
			if (same_file(fd, l->library))
				t->start = find(&e, bias, "tokenlag_start");
		}
	}
	close(fd);
	return 0;
}

/* A thread that was sent by somebody who is no more may be on its way. */
static int await_end(const struct inject_target *t, char why[160])
{
	struct timespec tick = { 0, 50000000 };

	for (int i = 0; i < 40; i++) {
		bool busy = inject_arch__is_busy(t);

		nanosleep(&tick, NULL);		/* it leaves the code just behind that mark */
		if (!busy)
			return 0;
	}
	return refuse(why, -EBUSY, "a thread of process %d has not come back from an earlier visit", t->pid);
}

int inject_target__open(pid_t pid, int library, enum inject_way way, struct inject_target *ret, char why[160])
{
	struct inject_target t = { .pid = pid, .mem = -1 };
	struct look look = { &t, library, why, false, false, false };
	char path[64];
	int err = check_status(pid, way, why);

	if (!err)
		err = check_exe(pid, way, why);
	if (!err)
		err = check_env(pid, why);
	if (err)
		return err;
	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	t.mem = open(path, O_RDWR | O_CLOEXEC);
	if (t.mem < 0)
		return refuse(why, -EPERM, "not allowed to trace process %d: %s", pid, strerror(errno));
	if (flock(t.mem, LOCK_EX | LOCK_NB))
		err = refuse(why, -EBUSY, "somebody else enters process %d just now", pid);
	else
		err = proc_each_exec_map(pid, on_map, &look);
	if (err && !why[0])
		refuse(why, err, "cannot read the mappings of process %d: %s", pid, strerror(-err));
	else if (!err && look.musl)
		err = refuse(why, -ENOTSUP, "process %d uses musl: libraries for glibc do not load there", pid);
	else if (!err && (!look.libc || !look.loader))
		err = refuse(why, -ENOTSUP, "process %d is linked statically: no library can be loaded", pid);
	else if (!err && (!t.dlopen || !t.dlsym || !t.errno_location))
		err = refuse(why, -ENOTSUP, "no dlopen in the libc of process %d", pid);
	else if (!err && way == INJECT_BY_PTRACE && !t.cave)
		err = refuse(why, -ENOTSUP, "no room for code behind that of the libc of process %d", pid);
	if (!err && t.left_behind)
		err = await_end(&t, why);
	if (!err)
		err = check_room(&t, way, why);
	if (err) {
		inject_target__close(&t);
		return err;
	}
	*ret = t;
	return 0;
}

void inject_target__close(struct inject_target *t)
{
	if (t->mem >= 0)
		close(t->mem);
	t->mem = -1;
}
