/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the CUPTI that the target has mapped, else one in its CUDA toolkit, and takes its functions
 * by name. Bringing one of our own would put two into one process, which CUPTI does not bear. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cupti.h"
#include "glibc_old.h"

static const struct cupti_row {
	const char *name;
	size_t at;		/* in struct cupti */
	bool needed;
} rows[] = {
	{ "cuptiGetVersion", offsetof(struct cupti, get_version), true },
	{ "cuptiGetTimestamp", offsetof(struct cupti, get_timestamp), true },
	{ "cuptiSubscribe", offsetof(struct cupti, subscribe), true },
	{ "cuptiSubscribe_v2", offsetof(struct cupti, subscribe_v2), false },	/* from 13.0 on */
	{ "cuptiUnsubscribe", offsetof(struct cupti, unsubscribe), true },
	{ "cuptiEnableCallback", offsetof(struct cupti, enable_callback), true },
	{ "cuptiActivityRegisterCallbacks", offsetof(struct cupti, register_callbacks), true },
	{ "cuptiActivityEnable", offsetof(struct cupti, enable), true },
	{ "cuptiActivityDisable", offsetof(struct cupti, disable), true },
	{ "cuptiActivityGetNextRecord", offsetof(struct cupti, next_record), true },
	{ "cuptiActivityFlushAll", offsetof(struct cupti, flush_all), true },
	{ "cuptiActivityGetNumDroppedRecords", offsetof(struct cupti, n_dropped), false },
	{ "cuptiFinalize", offsetof(struct cupti, finalize), false },
};

/* ---- what is mapped ---- */

struct maps {			/* /proc/self/maps, line by line, without stdio's allocations */
	int fd;
	size_t begin, end;
	char buf[8192];
};

static int maps__open(struct maps *m)
{
	m->begin = m->end = 0;
	m->fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	return m->fd < 0 ? -errno : 0;
}

static char *maps__next(struct maps *m)
{
	for (;;) {
		char *line = m->buf + m->begin, *nl = memchr(line, '\n', m->end - m->begin);
		ssize_t n;

		if (nl) {
			*nl = 0;
			m->begin = nl + 1 - m->buf;
			return line;
		}
		memmove(m->buf, line, m->end - m->begin);
		m->end -= m->begin;
		m->begin = 0;
		if (m->end == sizeof(m->buf))
			m->end = 0;	/* longer than any path: skip it */
		n = read(m->fd, m->buf + m->end, sizeof(m->buf) - m->end);
		if (n <= 0)
			return NULL;
		m->end += n;
	}
}

static int check_maps(void)
{
	struct maps m;
	int err = maps__open(&m);

	if (!err)
		close(m.fd);
	return err;
}

/* The first mapped file whose name begins with `name`, behind `skip`. */
static bool mapped(const char *name, const char *skip, char *ret, size_t size)
{
	struct maps m;
	char *line;
	bool found = false;

	if (maps__open(&m))
		return false;
	while (!found && (line = maps__next(&m))) {
		char *path = strchr(line, '/'), *base, *deleted;

		if (!path)
			continue;
		base = strrchr(path, '/') + 1;
		if (strncmp(base, name, strlen(name)))
			continue;
		deleted = strstr(path, " (deleted)");
		if (deleted)
			*deleted = 0;
		if (strlen(path) >= size || (skip && !strcmp(path, skip)))
			continue;
		memcpy(ret, path, strlen(path) + 1);
		found = true;
	}
	close(m.fd);
	return found;
}

int cupti__touch_cuda(bool *ret_simulated)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY), *sym;
	int (*count)(int *);
	char path[192];
	int n;

	if (!lib && mapped("libcuda.so", NULL, path, sizeof(path)))
		/* One that calls itself otherwise. */
		lib = dlopen(path, RTLD_NOLOAD | RTLD_LAZY);
	if (!lib)
		return -ENOENT;
	*ret_simulated = dlsym(lib, "tokenlag_simulated") != NULL;
	sym = dlsym(lib, "cuDeviceGetCount");
	if (!sym)
		return -ENOENT;
	memcpy(&count, &sym, sizeof(count));
	return count(&n);
}

/* ---- the library ---- */

/* A mapped file is known to the loader by the name it was opened with, which may be another one
 * than the map's (links), or be gone (deleted): the sonames are tried, too. */
static void *mapped_lib(const char *path)
{
	static const char *const sonames[] = { "libcupti.so.13", "libcupti.so.12",
					       "libcupti.so.11.8" };
	void *lib = dlopen(path, RTLD_NOLOAD | RTLD_LAZY);

	for (size_t i = 0; !lib && i < sizeof(sonames) / sizeof(sonames[0]); i++)
		lib = dlopen(sonames[i], RTLD_NOLOAD | RTLD_LAZY);
	return lib;
}

/* Where toolkits and wheels keep it, as seen from a CUDA library that the target has mapped. */
static void *toolkit_lib(char *path, size_t size)
{
	static const char *const beside[] = { "libcudart.so", "libcublasLt.so", "libnvrtc.so",
					      "libnccl.so" };
	static const char *const where[] = {
		"%s/libcupti.so.%s",
		"%s/../extras/CUPTI/lib64/libcupti.so.%s",
		"%s/../../../extras/CUPTI/lib64/libcupti.so.%s",
		"%s/../../cuda_cupti/lib/libcupti.so.%s",
	};
	static const char *const versions[] = { "13", "12", "11.8" };
	char dir[192];

	for (size_t b = 0; b < sizeof(beside) / sizeof(beside[0]); b++) {
		if (!mapped(beside[b], NULL, dir, sizeof(dir)))
			continue;
		*strrchr(dir, '/') = 0;
		for (size_t w = 0; w < sizeof(where) / sizeof(where[0]); w++)
			for (size_t v = 0; v < sizeof(versions) / sizeof(versions[0]); v++) {
				void *lib;

				snprintf(path, size, where[w], dir, versions[v]);
				if (access(path, R_OK))
					continue;
				lib = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
				if (lib)
					return lib;
			}
	}
	return NULL;
}

static int take_functions(struct cupti *c, char *why, size_t why_size)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		void *fn = dlsym(c->lib, rows[i].name);

		if (!fn && rows[i].needed) {
			snprintf(why, why_size, "the target's CUPTI has no %s: too old",
				 rows[i].name);
			return -ENOSYS;
		}
		memcpy((char *)c + rows[i].at, &fn, sizeof(fn));
	}
	return 0;
}

int cupti__find(struct cupti *c, char *why, size_t why_size)
{
	char other[sizeof(c->path)];
	int err;

	memset(c, 0, sizeof(*c));
	err = check_maps();
	if (err) {
		snprintf(why, why_size,
			 "its mappings cannot be read to find CUPTI (error %d): no descriptor is free?",
			 -err);
		return err;
	}
	if (mapped("libcupti.so", NULL, c->path, sizeof(c->path))) {
		c->lib = mapped_lib(c->path);
		c->several = mapped("libcupti.so", c->path, other, sizeof(other));
		if (!c->lib) {
			snprintf(why, why_size,
				 "the target's CUPTI is mapped, but its loader does not know it");
			return -ENOENT;
		}
	} else {
		c->own = true;
		c->lib = toolkit_lib(c->path, sizeof(c->path));
		if (!c->lib) {
			snprintf(why, why_size,
				 "no CUPTI in the target, and none beside its CUDA libraries");
			return -ENOENT;
		}
	}
	err = take_functions(c, why, why_size);
	if (err)
		return err;
	if (c->get_version(&c->version)) {
		snprintf(why, why_size, "the target's CUPTI does not tell its version");
		return -EIO;
	}
	if (c->version < CUPTI_11_8) {
		snprintf(why, why_size, "the target's CUPTI (API version %u) is older than 11.8",
			 c->version);
		return -ENOTSUP;
	}
	return 0;
}
