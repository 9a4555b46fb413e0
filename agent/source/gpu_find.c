/* SPDX-License-Identifier: Apache-2.0 */
/* Looks for libcuda among the mappings of a process, and for children among all processes. */
#include "source/gpu_find.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "source/elfsyms.h"
#include "source/proc.h"

enum { MAX_PROCESSES = 1 << 16 };

static const char libcuda[] = "libcuda.so"; /* .1, .550.54.15 */

struct look {
	const char *begin; /* of the name of a file */
	char *found; /* NULL: of no interest */
	size_t size;
};

static int on_map(void *ctx, const struct proc_map *m)
{
	const char *base = strrchr(m->path, '/');
	struct look *l = ctx;

	if (!base || strncmp(base + 1, l->begin, strlen(l->begin)))
		return 0;
	if (l->found)
		snprintf(l->found, l->size, "%s", base + 1);
	return 1;
}

int gpu_maps_cuda(pid_t pid)
{
	struct look l = { .begin = libcuda };

	return proc_each_exec_map(pid, on_map, &l);
}

struct look_in {
	pid_t pid;
	const char *symbol;
};

static int has_symbol(void *ctx, const struct proc_map *m)
{
	const char *base = strrchr(m->path, '/');
	const struct look_in *l = ctx;
	struct elfsyms e;
	char path[300];
	Elf64_Sym sym;
	int fd, found;

	if (!base || strncmp(base + 1, libcuda, sizeof(libcuda) - 1))
		return 0;
	fd = proc_open_map(l->pid, m, path, sizeof(path));
	if (fd < 0)
		return 0;
	found = !elfsyms_open(fd, &e) && !elfsyms_find(&e, l->symbol, &sym);
	close(fd);
	return found;
}

bool gpu_is_simulated(pid_t pid)
{
	struct look_in l = { pid, "tokenlag_simulated" };

	return proc_each_exec_map(pid, has_symbol, &l) > 0;
}

bool gpu_can_probe(pid_t pid)
{
	struct look_in graphs = { pid, "cuGraphLaunch" }, kernels = { pid, "cuLaunchKernel" };

	return proc_each_exec_map(pid, has_symbol, &graphs) > 0 ||
	       proc_each_exec_map(pid, has_symbol, &kernels) > 0;
}

int gpu_mapped_cupti(pid_t pid, char *ret, size_t size)
{
	struct look l = { "libcupti.so", ret, size };
	int n;

	*ret = 0;
	n = proc_each_exec_map(pid, on_map, &l);
	return n < 0 ? n : 0;
}

struct family {
	struct {
		uint32_t pid, parent;
	} * v;
	size_t n, max;
};

static int note_parent(void *ctx, pid_t pid)
{
	struct family *f = ctx;
	char path[64], text[512], *end;
	unsigned int parent = 0;
	FILE *file;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	n = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[n] = 0;
	end = strrchr(text, ')'); /* its name may hold anything */
	if (!end || sscanf(end + 1, " %*c %u", &parent) != 1)
		return 0;
	if (f->n == f->max) {
		size_t max = f->max ? 2 * f->max : 512;
		void *more = max > MAX_PROCESSES ? NULL : realloc(f->v, max * sizeof(*f->v));

		if (!more)
			return -ENOMEM;
		f->v = more;
		f->max = max;
	}
	f->v[f->n].pid = pid;
	f->v[f->n++].parent = parent;
	return 0;
}

int gpu_descendants(pid_t pid, uint32_t **ret)
{
	struct family f = { 0 };
	uint32_t *found;
	int err = proc_each(note_parent, &f);
	size_t n = 1;

	found = err ? NULL : malloc((f.n + 1) * sizeof(*found));
	if (!found) {
		free(f.v);
		return err ? err : -ENOMEM;
	}
	found[0] = pid;
	for (size_t i = 0; i < n; i++) {
		for (size_t k = 0; k < f.n; k++) {
			if (f.v[k].parent != found[i] || f.v[k].pid == found[i])
				continue;
			found[n++] = f.v[k].pid;
			f.v[k].parent = 0; /* once */
		}
	}
	free(f.v);
	memmove(found, found + 1, (n - 1) * sizeof(*found));
	*ret = found;
	return n - 1;
}
