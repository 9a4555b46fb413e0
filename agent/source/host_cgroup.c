/* SPDX-License-Identifier: Apache-2.0 */
/* CPU quotas of the cgroups that servers are in: when one was used up, and by whom. */
#include "base/str.h"
#include "source/cgroup_text.h"
#include "source/host_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_CGROUPS = 256, MAX_TEXT = 16 << 10 };
static const uint64_t look_gap_ns = 95000000, check_gap_ns = 1000000000, min_user_ns = 500000;

/* A cgroup that a followed process is in, or one above it. */
struct quota {
	struct cgroup_stat last;
	uint64_t looked_ns, checked_ns;
	uint64_t quota_us, period_us;	/* quota 0: none */
	char dir[320];
	char path[160];
};

static ssize_t read_text(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -errno : read(fd, buf, size - 1);

	if (fd >= 0)
		close(fd);
	buf[n > 0 ? n : 0] = '\0';
	return n;
}

static ssize_t read_in(const char *dir, const char *name, char *buf, size_t size)
{
	char path[384];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return read_text(path, buf, size);
}

int host_cgroup_open(struct host *h)
{
	char *text = malloc(MAX_TEXT);

	h->quotas = map__new(sizeof(struct quota), MAX_CGROUPS);
	h->mount = calloc(1, sizeof(*h->mount));
	if (!text || !h->quotas || !h->mount) {
		free(text);
		return -ENOMEM;
	}
	/* Without: no cgroup is named, nothing is throttled. */
	if (read_text("/proc/self/mountinfo", text, MAX_TEXT) > 0)
		cgroup_parse_mounts(text, h->mount);
	free(text);
	return 0;
}

void host_cgroup_close(struct host *h)
{
	map__free(h->quotas);
	free(h->mount);
}

bool host_cgroup_is_v1(const struct host *h)
{
	return h->mount->v1;
}

static void read_quota(const struct host *h, struct quota *q)
{
	char buf[64];
	long long v;

	if (!h->mount->v1) {
		if (read_in(q->dir, "cpu.max", buf, sizeof(buf)) <= 0 ||
		    cgroup_parse_max(buf, &q->quota_us, &q->period_us))
			q->quota_us = 0;
		return;
	}
	v = read_in(q->dir, "cpu.cfs_quota_us", buf, sizeof(buf)) > 0 ? atoll(buf) : -1;
	q->quota_us = v > 0 ? v : 0;
	v = read_in(q->dir, "cpu.cfs_period_us", buf, sizeof(buf)) > 0 ? atoll(buf) : 0;
	q->period_us = v > 0 ? v : 0;
}

static bool read_stat(const struct quota *q, struct cgroup_stat *ret)
{
	char buf[1024];

	return read_in(q->dir, "cpu.stat", buf, sizeof(buf)) > 0 && !cgroup_parse_stat(buf, ret);
}

/* Remembers the cgroup of that folder, and returns its id; 0: not known. */
static uint64_t add_cgroup(struct host *h, const char *dir, const char *path)
{
	struct quota *q;
	struct stat st;
	bool fresh;

	if (stat(dir, &st))
		return 0;
	q = map__put(h->quotas, st.st_ino, &fresh);
	if (q && fresh) {
		str_copy(q->dir, sizeof(q->dir), dir);
		str_copy(q->path, sizeof(q->path), path);
	}
	return st.st_ino;
}

/* Keeps the end: it is what tells cgroups apart. */
static void copy_end(char *dst, size_t size, const char *src)
{
	size_t len = strlen(src);

	str_copy(dst, size, len < size ? src : src + len - (size - 1));
}

void host_cgroup_find(struct host *h, struct process *p)
{
	char buf[4096], path[256], dir[320], file[32], *slash;
	uint64_t id;

	snprintf(file, sizeof(file), "/proc/%u/cgroup", p->tgid);
	p->n_cgroups = 0;
	if (!h->mount->dir[0] || read_text(file, buf, sizeof(buf)) <= 0 ||
	    cgroup_parse_path(buf, h->mount->v1, path, sizeof(path)))
		return;
	copy_end(p->cgroup_path, sizeof(p->cgroup_path), path);
	while (p->n_cgroups < MAX_ABOVE) {
		if (cgroup_dir(h->mount, path, dir, sizeof(dir)))
			break;
		id = add_cgroup(h, dir, path);
		if (!id)
			break;
		p->cgroups[p->n_cgroups++] = id;
		slash = strrchr(path, '/');
		if (!slash || !path[1])
			break;
		slash[slash == path] = '\0';	/* the one above; of "/x" that is "/" */
	}
	p->cgroup = p->n_cgroups ? p->cgroups[0] : 0;
}

bool host_cgroup_is_limited(const struct host *h, const struct process *p)
{
	for (size_t i = 0; i < p->n_cgroups; i++) {
		const struct quota *q = map__get(h->quotas, p->cgroups[i]);

		if (q && q->quota_us)
			return true;
	}
	return false;
}

/* ---- who used it ---- */

enum { MAX_GROUPS = 64 };
struct group {			/* threads of one process with one name */
	uint32_t tgid, n;
	uint64_t ns;
	char name[16];
};
struct users {
	struct host *h;
	uint64_t cgroup, since_ns, now_ns;
	bool wanted;		/* else their times are noted only */
	struct group groups[MAX_GROUPS];
	size_t n;
};

static bool is_in(const struct process *p, uint64_t cgroup)
{
	for (size_t i = 0; i < p->n_cgroups; i++)
		if (p->cgroups[i] == cgroup)
			return true;
	return false;
}

static void add_user(struct users *u, const struct thread *t, uint64_t ns)
{
	size_t i = 0;

	while (i < u->n && (u->groups[i].tgid != t->tgid || strcmp(u->groups[i].name, t->comm)))
		i++;
	if (i == MAX_GROUPS)
		return;
	if (i == u->n) {
		u->groups[u->n++] = (struct group){ .tgid = t->tgid };
		str_copy(u->groups[i].name, sizeof(u->groups[i].name), t->comm);
	}
	u->groups[i].n++;
	u->groups[i].ns += ns;
}

static void on_cpu_time(void *ctx, uint32_t tgid, uint32_t tid, uint64_t cpu_ns)
{
	struct users *u = ctx;
	const struct process *p = map__get(u->h->processes, tgid);
	struct thread *t = p && is_in(p, u->cgroup) ? host_thread(u->h, tgid, tid) : NULL;
	uint64_t ns;

	if (!t)
		return;
	ns = cpu_ns > t->quota_cpu_ns ? cpu_ns - t->quota_cpu_ns : 0;
	t->quota_cpu_ns = cpu_ns;
	if (ns > u->now_ns - u->since_ns)	/* it was not looked at before */
		ns = u->now_ns - u->since_ns;
	if (!u->wanted || ns < min_user_ns)
		return;
	host_name_thread(t, tid, u->now_ns);
	add_user(u, t, ns);
}

static void find_user(struct host *h, uint64_t cgroup, bool wanted, struct tl_throttle *ev)
{
	struct users u = { .h = h, .cgroup = cgroup, .since_ns = ev->since_ns,
			   .now_ns = ev->hdr.ts_ns, .wanted = wanted };
	const struct group *most = NULL;

	host_bpf_cpu_times(h, on_cpu_time, &u);
	for (size_t i = 0; i < u.n; i++)
		if (!most || u.groups[i].ns > most->ns)
			most = &u.groups[i];
	if (!most)
		return;
	ev->by_tgid = most->tgid;
	ev->by_threads = most->n;
	ev->by_ns = most->ns;
	memcpy(ev->by_name, most->name, sizeof(ev->by_name));
}

/* ---- looking ---- */

/* One event per cgroup that processes are in: itself or one above it has the quota. */
static int tell(struct host *h, uint64_t cgroup, struct tl_throttle *ev, const struct emit *out)
{
	uint64_t told[32];
	size_t n = 0, i;
	int err = 0;

	for (struct process *p = map__oldest(h->processes, NULL); p && !err;
	     p = map__newer(h->processes, p, NULL)) {
		if (!is_in(p, cgroup))
			continue;
		for (i = 0; i < n && told[i] != p->cgroup; i++)
			;
		if (i < n || n == sizeof(told) / sizeof(told[0]))
			continue;
		told[n++] = ev->cgroup = p->cgroup;
		err = emit(out, &ev->hdr);
	}
	return err;
}

static int look(struct host *h, uint64_t cgroup, struct quota *q, uint64_t now_ns,
		const struct emit *out)
{
	struct tl_throttle ev = { .hdr = { sizeof(ev), TL_THROTTLE, 0, 0, 0, now_ns } };
	struct cgroup_stat s;
	bool throttled;

	if (!read_stat(q, &s))
		return 0;
	if (!q->quota_us && !s.n_periods) {	/* it has never had a quota */
		q->looked_ns = now_ns;
		q->last = s;
		return 0;
	}
	/* The times of a throttling are counted when it ends. */
	throttled = q->looked_ns && (s.n_throttled != q->last.n_throttled ||
				     s.throttled_ns != q->last.throttled_ns);
	ev.since_ns = q->looked_ns;
	ev.throttled_ns = s.throttled_ns - q->last.throttled_ns;
	ev.n_throttled = s.n_throttled - q->last.n_throttled;
	ev.n_periods = s.n_periods - q->last.n_periods;
	q->last = s;
	q->looked_ns = now_ns;
	find_user(h, cgroup, throttled, &ev);
	if (!throttled)
		return 0;
	ev.quota_us = q->quota_us;
	ev.period_us = q->period_us;
	copy_end(ev.path, sizeof(ev.path), q->path);
	return tell(h, cgroup, &ev, out);
}

/* Processes are moved to other cgroups, mostly soon after they began. */
static int place(struct host *h, const struct emit *out)
{
	uint64_t tid;
	int err = 0;

	for (struct process *p = map__oldest(h->processes, NULL); p;
	     p = map__newer(h->processes, p, NULL)) {
		p->last_cgroup = p->cgroup;
		host_cgroup_find(h, p);
	}
	for (struct thread *t = map__oldest(h->threads, &tid); t && !err;
	     t = map__newer(h->threads, t, &tid)) {
		const struct process *p = t->told ? map__get(h->processes, t->tgid) : NULL;

		if (p && p->cgroup != p->last_cgroup)
			err = host_tell_thread(h, tid, t, out);
	}
	return err;
}

int host_cgroup_poll(struct host *h, uint64_t now_ns, const struct emit *out)
{
	uint64_t id;
	int err = 0;

	if (now_ns - h->placed_ns > check_gap_ns) {
		h->placed_ns = now_ns;
		err = place(h, out);
	}

	for (struct quota *q = map__oldest(h->quotas, &id); q && !err;
	     q = map__newer(h->quotas, q, &id)) {
		if (!q->checked_ns || now_ns - q->checked_ns > check_gap_ns) {
			q->checked_ns = now_ns;
			read_quota(h, q);
			/* It may have been set since, and be gone again: the counts tell. */
			if (!q->quota_us)
				err = look(h, id, q, now_ns, out);
		}
		if (!err && q->quota_us && now_ns - q->looked_ns >= look_gap_ns)
			err = look(h, id, q, now_ns, out);
	}
	return err;
}
