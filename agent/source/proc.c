/* SPDX-License-Identifier: Apache-2.0 */
/* Facts of one process, and the walk over all of them. */
#include "source/proc_priv.h"

#include "base/units.h"
#include <ctype.h>
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
	MAX_CMDLINE = 64 * 1024,
	PF_KTHREAD_ = 0x00200000,	/* the kernel's PF_KTHREAD, in field "flags" of stat */
};

/* Reads up to size - 1 bytes of /proc/PID/NAME and ends them with a NUL. Returns their number. */
static ssize_t read_text(pid_t pid, const char *name, char *buf, size_t size)
{
	size_t have = 0;
	char path[64];
	ssize_t n = 0;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	while (have < size - 1 && (n = read(fd, buf + have, size - 1 - have)) > 0)
		have += n;
	n = n < 0 ? -errno : (ssize_t)have;
	close(fd);
	buf[have] = 0;
	return n;
}

/* How long the host was suspended, in whole ticks: start times are compared between looks, so no
 * two looks may differ by the time between two clock reads. */
static int64_t suspended_ns(int64_t tick_ns)
{
	struct timespec boot, mono;
	int64_t ns;

	clock_gettime(CLOCK_MONOTONIC, &mono);
	clock_gettime(CLOCK_BOOTTIME, &boot);
	ns = (boot.tv_sec - mono.tv_sec) * (int64_t)NS_PER_S + boot.tv_nsec - mono.tv_nsec;
	return (ns + tick_ns / 2) / tick_ns * tick_ns;
}

/* pid (comm) state ppid ... : comm may hold spaces and parentheses. */
static int read_stat(pid_t pid, struct proc_facts *f)
{
	int64_t tick_ns = (int64_t)NS_PER_S / sysconf(_SC_CLK_TCK);
	unsigned long long start;
	char buf[1024], *open_, *close_;
	unsigned int flags;
	ssize_t n;
	int64_t ns;

	n = read_text(pid, "stat", buf, sizeof(buf));
	if (n < 0)
		return n;
	open_ = strchr(buf, '(');
	close_ = strrchr(buf, ')');
	if (!open_ || !close_ || close_ < open_)
		return -ESRCH;
	*close_ = 0;
	snprintf(f->comm, sizeof(f->comm), "%s", open_ + 1);
	/* fields 4 (ppid), 9 (flags) and 22 (starttime) of proc(5) */
	if (sscanf(close_ + 1,
		   " %*c %u %*d %*d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d "
		   "%llu",
		   &f->ppid, &flags, &start) != 3)
		return -ESRCH;
	f->kernel_thread = flags & PF_KTHREAD_;
	ns = start * tick_ns - suspended_ns(tick_ns);
	f->start_ns = ns > 0 ? ns : 0;
	return 0;
}

static int read_status(pid_t pid, struct proc_facts *f)
{
	char buf[4096], *p;
	ssize_t n;

	n = read_text(pid, "status", buf, sizeof(buf));
	if (n < 0)
		return n;
	p = strstr(buf, "\nTgid:");
	if (p && atoi(p + 6) != pid)
		return -ESRCH;		/* a thread: it has a folder, but is no process */
	p = strstr(buf, "\nUid:");
	if (p)
		sscanf(p, "\nUid: %*u %u", &f->uid);
	f->pid_inside = pid;
	p = strstr(buf, "\nNSpid:");
	if (p) {
		for (p += 7; *p && *p != '\n';) {
			f->pid_inside = strtoul(p, &p, 10);
			p += strspn(p, " \t");
		}
	}
	return 0;
}

static int read_cmdline(pid_t pid, struct proc_facts *f)
{
	char *buf = malloc(MAX_CMDLINE), *less;
	ssize_t n;

	if (!buf)
		return -ENOMEM;
	n = read_text(pid, "cmdline", buf, MAX_CMDLINE);
	if (n < 0) {
		free(buf);
		return n;
	}
	less = realloc(buf, n + 1);
	f->cmdline = less ? less : buf;
	f->cmdline_len = n;
	return 0;
}

/* The end of a cgroup path is what tells containers apart. */
static void read_cgroup(pid_t pid, struct proc_facts *f)
{
	char buf[4096], *line = buf, *path;
	ssize_t n = read_text(pid, "cgroup", buf, sizeof(buf));
	size_t len;

	for (; n > 0 && *line; line += len + 1) {
		len = strcspn(line, "\n");
		path = memchr(line, '/', len);
		if (path && (size_t)(line + len - path) > strlen(f->cgroup)) {
			size_t keep = line + len - path;

			if (keep >= sizeof(f->cgroup)) {
				path += keep - (sizeof(f->cgroup) - 1);
				keep = sizeof(f->cgroup) - 1;
			}
			snprintf(f->cgroup, sizeof(f->cgroup), "%.*s", (int)keep, path);
		}
		if (!line[len])
			break;
	}
}

static int read_exe(pid_t pid, struct proc_facts *f)
{
	static const char deleted[] = " (deleted)";
	char path[64], exe[4096];
	size_t n_deleted = sizeof(deleted) - 1;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/exe", pid);
	n = readlink(path, exe, sizeof(exe) - 1);
	if (n < 0)
		return errno == EACCES || errno == EPERM ? -EACCES
							 : 0; /* kernel threads have none */
	exe[n] = 0;
	if ((size_t)n > n_deleted && !strcmp(exe + n - n_deleted, deleted)) {
		exe[n - n_deleted] = 0;
		f->deleted_exe = true;
	}
	snprintf(f->exe, sizeof(f->exe), "%.*s", (int)sizeof(f->exe) - 1, exe);
	return 0;
}

static int other_ns(pid_t pid, const char *ns, bool *ret)
{
	struct stat theirs, ours;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/%s", pid, ns);
	if (stat(path, &theirs))
		return errno == EACCES || errno == EPERM ? -EACCES : 0;
	snprintf(path, sizeof(path), "/proc/self/ns/%s", ns);
	if (stat(path, &ours))
		return 0;
	*ret = theirs.st_ino != ours.st_ino;
	return 0;
}

/* What any reader may see: -ESRCH, -ENOMEM or 0. */
static int read_open_facts(pid_t pid, struct proc_facts *f)
{
	int err;

	f->pid = pid;
	err = read_stat(pid, f);
	if (!err)
		err = read_status(pid, f);
	if (!err)
		err = read_cmdline(pid, f);
	if (!err)
		read_cgroup(pid, f);
	return err;
}

/* The rest needs the right to trace the process: what is refused is left out, and then said. */
static int read_guarded_facts(struct proc_scan *s, pid_t pid, bool all, struct proc_facts *f)
{
	struct engine_id id;
	bool refused;
	int err;

	refused = read_exe(pid, f) == -EACCES;
	refused |= other_ns(pid, "mnt", &f->other_mnt_ns) == -EACCES;
	refused |= other_ns(pid, "pid", &f->other_pid_ns) == -EACCES;
	err = proc_files__read(s, pid, f);
	if (err && err != -EACCES)
		return err;
	refused |= err == -EACCES;
	if (!all && !recognise(f, &id))
		return refused ? -EACCES : 0;
	err = proc_packages__read(pid, f);
	if (err && err != -EACCES)
		return err;
	refused |= err == -EACCES;
	err = proc_fds__read(s, pid, f);
	if (err && err != -EACCES)
		return err;
	f->ports_unknown = err && !f->n_ports;
	return err || refused ? -EACCES : 0;
}

static int read_facts(struct proc_scan *s, pid_t pid, bool all, struct proc_facts *ret)
{
	struct proc_facts f = { 0 };
	int err;

	err = read_open_facts(pid, &f);
	if (!err && !f.kernel_thread)
		err = read_guarded_facts(s, pid, all, &f);
	if (err && err != -EACCES) {
		proc_facts__free(&f);
		return err;
	}
	*ret = f;
	return err;
}

int proc_glance(pid_t pid, struct proc_facts *ret)
{
	ret->pid = pid;
	return read_stat(pid, ret);
}

int proc_scan__read(struct proc_scan *s, pid_t pid, struct proc_facts *ret)
{
	return read_facts(s, pid, false, ret);
}

int proc_read_facts(pid_t pid, struct proc_facts *ret)
{
	struct proc_scan *s = proc_scan__new();
	int err;

	if (!s)
		return -ENOMEM;
	err = read_facts(s, pid, true, ret);
	proc_scan__free(s);
	return err;
}

void proc_facts__free(struct proc_facts *f)
{
	for (size_t i = 0; i < f->n_libs; i++)
		free(f->libs[i]);
	for (size_t i = 0; i < f->n_packages; i++)
		free(f->packages[i]);
	free(f->libs);
	free(f->packages);
	free(f->cmdline);
	memset(f, 0, sizeof(*f));
}

struct proc_scan *proc_scan__new(void)
{
	return calloc(1, sizeof(struct proc_scan));
}

void proc_scan__free(struct proc_scan *s)
{
	if (!s)
		return;
	free(s->files);
	free(s->listeners);
	free(s->netns);
	free(s);
}

void proc_scan__again(struct proc_scan *s)
{
	s->n_listeners = 0;
	s->n_netns = 0;
}

bool proc_is_32bit(pid_t pid)
{
	unsigned char ident[EI_CLASS + 1];
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/exe", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = pread(fd, ident, sizeof(ident), 0);
	close(fd);
	return n == sizeof(ident) && !memcmp(ident, ELFMAG, SELFMAG) &&
	       ident[EI_CLASS] == ELFCLASS32;
}

pid_t proc_of_thread(pid_t tid)
{
	char path[64], line[256];
	int tgid = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", tid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f) && sscanf(line, "Tgid: %d", &tgid) != 1)
		;
	if (f)
		fclose(f);
	return tgid;
}

int proc_each(int (*fn)(void *ctx, pid_t pid), void *ctx)
{
	DIR *dir = opendir("/proc");
	struct dirent *d;
	int err = 0;

	if (!dir)
		return -errno;
	while (!err && (d = readdir(dir))) {
		if (isdigit((unsigned char)d->d_name[0]))
			err = fn(ctx, atoi(d->d_name));
	}
	closedir(dir);
	return err;
}
