/* SPDX-License-Identifier: Apache-2.0 */
/* Reads NSpid of each thread, and again if there is one that was not there. */
#include "source/gpu_tids.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_THREADS = 16384, LOOK_NS = 100000000 };

uint32_t gpu_tids_last(const char *status)
{
	const char *line = strstr(status, "\nNSpid:");
	uint32_t last = 0;
	int n;

	for (line = line ? line + 7 : ""; sscanf(line, "%*[ \t]%u%n", &last, &n) == 1; line += n)
		;
	return last;
}

uint32_t gpu_tids_inside(pid_t pid, uint32_t tid)
{
	char path[64], text[4096];
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%u/status", pid, tid);
	f = fopen(path, "re");
	if (!f)
		return 0;
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = 0;
	return gpu_tids_last(text);
}

void gpu_tids__init(struct gpu_tids *t, pid_t pid)
{
	uint32_t inside = gpu_tids_inside(pid, pid);

	*t = (struct gpu_tids){ .pid = pid, .same = !inside || inside == (uint32_t)pid };
}

void gpu_tids__free(struct gpu_tids *t)
{
	free(t->v);
	t->v = NULL;
	t->n = t->max = 0;
}

static bool add(struct gpu_tids *t, struct gpu_tid tid)
{
	if (t->n == t->max) {
		size_t max = t->max ? 2 * t->max : 64;
		struct gpu_tid *more = max > MAX_THREADS ? NULL
							 : realloc(t->v, max * sizeof(*t->v));

		if (!more)
			return false;
		t->v = more;
		t->max = max;
	}
	t->v[t->n++] = tid;
	return true;
}

static void look(struct gpu_tids *t)
{
	struct dirent *d;
	char path[64];
	bool room = true;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", t->pid);
	dir = opendir(path);
	if (!dir)
		return;
	t->n = 0;
	while (room && (d = readdir(dir))) {
		uint32_t ours = strtoul(d->d_name, NULL, 10),
			 inside = ours ? gpu_tids_inside(t->pid, ours) : 0;

		if (inside)
			room = add(t, (struct gpu_tid){ inside, ours });
	}
	closedir(dir);
}

static uint32_t find(struct gpu_tids *t, uint32_t inside)
{
	for (size_t i = 0; i < t->n; i++) {
		struct gpu_tid found = t->v[i];

		if (found.inside != inside)
			continue;
		t->v[i] = t->v[0]; /* few threads launch, and often */
		t->v[0] = found;
		return found.ours;
	}
	return 0;
}

uint32_t gpu_tids__ours(struct gpu_tids *t, uint32_t inside, uint64_t now_ns)
{
	uint32_t ours;

	if (t->same)
		return inside;
	ours = find(t, inside);
	if (ours || (t->look_ns && now_ns - t->look_ns < LOOK_NS))
		return ours;
	t->look_ns = now_ns;
	look(t);
	return find(t, inside);
}
