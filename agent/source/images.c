/* SPDX-License-Identifier: Apache-2.0 */
/* Which file, and which known function, the code at an address of a process belongs to. */
#include "source/images.h"

#include "base/map.h"
#include "base/num.h"
#include "base/str.h"
#include "base/vec.h"
#include "source/code_rules.h"
#include "source/elf_ranges.h"
#include "source/proc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_FILES = 8192, MAX_IMAGES = 8192, N_CALLS = 1024 };
static const uint64_t min_age_ns = 1000000000, max_age_ns = 16000000000;

struct file {
	int code;			/* as code_of_library */
	bool looked;			/* at its symbols */
	struct elf_range *ranges;
	size_t n_ranges;
	char name[64];
};
struct image_files {
	struct map *by_inode;		/* inode and device -> struct file * */
};

struct image {
	struct proc_map map;
	struct file *file;
};
struct images {
	pid_t pid;
	struct image_files *files;
	VEC(struct image) v;		/* by address */
	uint64_t read_ns, age_ns;	/* when, and how long nothing new is looked for */
	uint64_t sum;			/* tells those that were read from others */
	uint64_t calls[N_CALLS];	/* twice the address, plus 1 if a
					 * call is before it; 0: none */
};

struct image_files *image_files__new(void)
{
	struct image_files *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->by_inode = map__new(sizeof(struct file *), MAX_FILES);
	if (!f->by_inode) {
		free(f);
		return NULL;
	}
	return f;
}

void image_files__free(struct image_files *f)
{
	if (!f)
		return;
	for (struct file **at = map__oldest(f->by_inode, NULL); at;
	     at = map__newer(f->by_inode, at, NULL)) {
		free((*at)->ranges);
		free(*at);
	}
	map__free(f->by_inode);
	free(f);
}

struct images *images__new(pid_t pid, struct image_files *files)
{
	struct images *m = calloc(1, sizeof(*m));

	if (m) {
		m->pid = pid;
		m->files = files;
	}
	return m;
}

void images__free(struct images *m)
{
	if (!m)
		return;
	vec_free(&m->v);
	free(m);
}

static struct file *file_of(struct image_files *files, const struct proc_map *map)
{
	uint64_t key = map->inode ^ ((uint64_t)map->dev_major << 52) ^
		       ((uint64_t)map->dev_minor << 40);
	struct file **at = map__get(files->by_inode, key), *f;

	if (at)
		return *at;
	f = calloc(1, sizeof(*f));
	if (!f)
		return NULL;
	f->code = code_of_library(map->path);
	str_library(f->name, sizeof(f->name), map->path);
	at = map__put(files->by_inode, key, NULL);
	if (!at) {
		free(f);
		return NULL;
	}
	return *at = f;
}

static int add_map(void *ctx, const struct proc_map *map)
{
	struct images *m = ctx;
	struct file *f = file_of(m->files, map);
	struct image *i = f ? vec_push(&m->v, MAX_IMAGES) : NULL;

	if (!i)
		return -ENOMEM;
	i->map = *map;
	i->file = f;
	return 0;
}

static int by_start(const void *a, const void *b)
{
	const struct image *x = a, *y = b;

	return x->map.start < y->map.start ? -1 : x->map.start > y->map.start;
}

/* Code that is in no file is asked for again and again, and an engine has thousands of maps: less
 * and less often while they stay as they are. */
static void read_maps(struct images *m, uint64_t now_ns)
{
	uint64_t sum = 0;

	if (m->read_ns && now_ns - m->read_ns < m->age_ns)
		return;
	m->read_ns = now_ns;
	m->v.n = 0;
	proc_each_exec_map(m->pid, add_map, m);		/* what could be read is
							 * better than nothing */
	if (m->v.n)
		qsort(m->v.v, m->v.n, sizeof(*m->v.v), by_start);
	for (size_t i = 0; i < m->v.n; i++)
		sum = sum * 31 + m->v.v[i].map.start + m->v.v[i].map.inode;
	if (sum != m->sum || !m->age_ns)
		m->age_ns = min_age_ns;
	else
		m->age_ns = least(2 * m->age_ns, max_age_ns);
	if (sum != m->sum)
		memset(m->calls, 0, sizeof(m->calls));
	m->sum = sum;
}

static struct image *image_at(const struct images *m, uint64_t addr)
{
	size_t lo = 0, hi = m->v.n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (m->v.v[mid].map.start <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo && addr < m->v.v[lo - 1].map.end ? &m->v.v[lo - 1] : NULL;
}

bool images__has(const struct images *m, uint64_t addr)
{
	return image_at(m, addr);
}

static size_t call_place(uint64_t addr)
{
	return (addr * 0x9e3779b97f4a7c15) >> 54;	/* of N_CALLS */
}

int images__call(const struct images *m, uint64_t addr)
{
	uint64_t noted = m->calls[call_place(addr)];

	return noted >> 1 == addr ? (int)(noted & 1) : -1;
}

void images__note_call(struct images *m, uint64_t addr, bool is_call)
{
	m->calls[call_place(addr)] = addr << 1 | is_call;
}

static void look_at_symbols(struct images *m, struct image *i)
{
	char path[512];
	int fd;

	i->file->looked = true;
	if (!code_has_symbols(i->map.path))
		return;
	fd = proc_open_map(m->pid, &i->map, path, sizeof(path));
	if (fd < 0)
		return;
	elf_ranges_read(fd, &i->file->ranges, &i->file->n_ranges);
	close(fd);
}

int images__find(struct images *m, uint64_t addr, uint64_t now_ns, struct image_place *ret)
{
	struct image *i = image_at(m, addr);
	const struct elf_range *r;

	if (!i) {
		read_maps(m, now_ns);
		i = image_at(m, addr);
	}
	if (!i)
		return -ENOENT;
	if (!i->file->looked)
		look_at_symbols(m, i);
	r = elf_ranges_at(i->file->ranges, i->file->n_ranges, addr - i->map.start + i->map.offset);
	*ret = (struct image_place){ i->file->name, r ? r->code : i->file->code, r ? r->name : NULL };
	return 0;
}

int images__map_of(struct images *m, const char *part, uint64_t now_ns, struct proc_map *ret)
{
	read_maps(m, now_ns);
	for (size_t i = 0; i < m->v.n; i++) {
		if (!strstr(m->v.v[i].file->name, part))
			continue;
		*ret = m->v.v[i].map;
		return 0;
	}
	return -ENOENT;
}
