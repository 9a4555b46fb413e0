/* SPDX-License-Identifier: Apache-2.0 */
/* The threads of the followed processes: finds them, and finds out what each is for. */
#include "base/str.h"
#include "source/host_priv.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_TASKS = 4096 };		/* of one process, looked at */
static const uint64_t first_gap_ns = 1000000000, max_gap_ns = 16000000000, name_age_ns = 500000000;
enum { OFTEN = 8 };		/* so often a name is read each time:
				 * threads are named once they run */

/* A small file of a thread; false: it is gone. */
static bool read_task_file(uint32_t tgid, uint32_t tid, const char *name, char *buf, size_t size)
{
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%u/task/%u/%s", tgid, tid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, buf, size - 1);
	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return false;
	buf[n] = '\0';
	return true;
}

/* Programs name their threads late. */
void host_name_thread(struct thread *t, uint32_t tid, uint64_t now_ns)
{
	char buf[32];

	if (t->n_named == OFTEN && now_ns - t->named_ns < name_age_ns)
		return;
	t->n_named += t->n_named < OFTEN;
	t->named_ns = now_ns;
	if (read_task_file(t->tgid, tid, "comm", buf, sizeof(buf)))
		str_copy_clean(t->comm, sizeof(t->comm), buf, strcspn(buf, "\n"));
}

bool host_is_stopped(uint32_t tgid, uint32_t tid)
{
	static const char *const sites[] = { "do_freezer_trap", "__refrigerator", "do_signal_stop",
					     "ptrace_stop" };
	char buf[256], *state;

	if (!read_task_file(tgid, tid, "stat", buf, sizeof(buf)))
		return false;
	state = strrchr(buf, ')');	/* a name may have any letters */
	if (state && (!strncmp(state, ") T", 3) || !strncmp(state, ") t", 3)))
		return true;
	if (!read_task_file(tgid, tid, "wchan", buf, sizeof(buf)))
		return false;
	for (size_t i = 0; i < sizeof(sites) / sizeof(sites[0]); i++)
		if (!strcmp(buf, sites[i]))
			return true;
	return false;
}

struct thread *host_thread(struct host *h, uint32_t tgid, uint32_t tid)
{
	struct thread *t = map__get(h->threads, tid);

	if (t && t->tgid == tgid)
		return t;
	if (!map__get(h->processes, tgid))
		return NULL;
	t = map__put(h->threads, tid, NULL);
	if (!t)
		return NULL;
	vec_free(&t->held);	/* of a thread of another process that had this number */
	*t = (struct thread){ .tgid = tgid };
	host_name_thread(t, tid, monotonic_ns());
	return t;
}

int host_tell_thread(struct host *h, uint32_t tid, struct thread *t, const struct emit *out)
{
	const struct process *p = map__get(h->processes, t->tgid);
	struct tl_thread ev = {
		.hdr = { sizeof(ev), TL_THREAD, 0, t->tgid, tid, monotonic_ns() },
		.role = t->role,
	};

	t->told = true;
	if (!p)
		return 0;
	ev.rank = p->rank;
	ev.server = p->server;
	ev.cgroup = p->cgroup;
	str_copy(ev.name, sizeof(ev.name), t->comm);
	str_copy(ev.cgroup_path, sizeof(ev.cgroup_path), p->cgroup_path);
	return emit(out, &ev.hdr);
}

int host_judge(struct host *h, uint32_t tid, struct thread *t, uint64_t wall_ns,
	       const struct emit *out)
{
	const struct process *p = map__get(h->processes, t->tgid);
	struct thread_facts f;
	uint16_t role;

	if (!p)
		return 0;
	f = (struct thread_facts){
		.engine = p->engine, .process = p->role, .comm = t->comm, .is_main = tid == t->tgid,
		.ran_step = t->ran_step, .spoke_http = t->spoke_http, .interprets = t->interprets,
		.cpu_ns = t->last_cpu_ns, .engine_cpu_ns = p->engine_cpu_ns, .wall_ns = wall_ns,
	};
	role = thread_role(&f);
	/* One that computed and does not now still does when there is work. */
	if (role == t->role || (role == TL_ROLE_OTHER && t->role == TL_ROLE_COMPUTE))
		return 0;
	t->role = role;
	host_bpf_watch(h, p, tid, thread_watch(p->engine, p->role, role));
	return host_tell_thread(h, tid, t, out);
}

static bool runs_steps(const struct process *p, uint32_t tid, const struct thread *t)
{
	return t->ran_step || t->role == TL_ROLE_ENGINE || t->role == TL_ROLE_LAUNCH ||
	       (tid == p->tgid && p->engine == TL_ENGINE_LLAMA && !p->engine_cpu_ns);
}

/* Reads how much CPU time each thread took since the last look. */
static void measure(struct host *h, struct process *p, uint64_t now_ns)
{
	char path[32], buf[64];
	struct dirent *d;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%u/task", p->tgid);
	dir = opendir(path);
	if (!dir)
		return;
	for (int n = 0; n < MAX_TASKS && (d = readdir(dir)); n++) {
		uint32_t tid = strtoul(d->d_name, NULL, 10);
		struct thread *t = tid ? host_thread(h, p->tgid, tid) : NULL;
		uint64_t cpu_ns;

		if (!t)
			continue;
		t->seen = true;
		if (!read_task_file(p->tgid, tid, "schedstat", buf, sizeof(buf)) ||
		    sscanf(buf, "%" SCNu64, &cpu_ns) != 1)
			continue;
		t->last_cpu_ns = p->scanned_ns ? cpu_ns - t->cpu_ns : 0;
		t->cpu_ns = cpu_ns;
		host_name_thread(t, tid, now_ns);
		if (runs_steps(p, tid, t) && t->last_cpu_ns > p->engine_cpu_ns)
			p->engine_cpu_ns = t->last_cpu_ns;
	}
	closedir(dir);
}

struct sweep {
	struct host *h;
	uint32_t tgid;
};

/* Threads of the process at hand that were not there any more. */
static bool is_gone(void *ctx, uint64_t tid, void *value)
{
	struct sweep *s = ctx;
	struct thread *t = value;
	bool gone = t->tgid == s->tgid && !t->seen;

	t->seen = false;
	if (gone) {
		map__del(s->h->watches, tid);
		vec_free(&t->held);
	}
	return gone;
}

static int scan(struct host *h, struct process *p, uint64_t now_ns, const struct emit *out)
{
	uint64_t wall_ns = p->scanned_ns ? now_ns - p->scanned_ns : 0, tid;
	struct sweep sweep = { h, p->tgid };
	int err = 0;

	p->engine_cpu_ns = 0;
	measure(h, p, now_ns);
	for (struct thread *t = map__oldest(h->threads, &tid); t && !err;
	     t = map__newer(h->threads, t, &tid)) {
		if (t->tgid == p->tgid && t->seen)
			err = host_judge(h, tid, t, wall_ns, out);
	}
	map__sweep(h->threads, is_gone, &sweep);
	p->scanned_ns = now_ns;
	return err;
}

/* The longer nothing changed, the more seldom: /proc is not cheap with hundreds of threads. */
int host_scan(struct host *h, uint64_t now_ns, const struct emit *out)
{
	int err = 0;

	for (struct process *p = map__oldest(h->processes, NULL); p && !err;
	     p = map__newer(h->processes, p, NULL)) {
		if (now_ns < p->next_scan_ns)
			continue;
		p->gap_ns = p->gap_ns ? 2 * p->gap_ns : first_gap_ns;
		if (p->gap_ns > max_gap_ns)
			p->gap_ns = max_gap_ns;
		p->next_scan_ns = now_ns + p->gap_ns;
		err = scan(h, p, now_ns, out);
	}
	return err;
}
