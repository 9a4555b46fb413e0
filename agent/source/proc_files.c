/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that a process has mapped tell: engines' symbols, build number, packages. */
#include "source/elfsyms.h"
#include "source/proc_priv.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	MAX_FILES = 65536,		/* remembered in one scan */
	MAX_PACKAGE_DIRS = 8,		/* of one process */
	MAX_PACKAGES = 16,
};
static const char build_number[] = "LLAMA_BUILD_NUMBER";

/* ---- the files seen so far ---- */

static struct file_facts *file_slot(struct file_facts *files, size_t max,
				    const struct file_facts *key)
{
	size_t i = (key->inode * 0x9e3779b97f4a7c15ull ^ key->dev_minor * 31 ^ key->dev_major) &
		   (max - 1);

	while (files[i].inode &&
	       (files[i].inode != key->inode || files[i].dev_major != key->dev_major ||
		files[i].dev_minor != key->dev_minor || files[i].is_exe != key->is_exe))
		i = (i + 1) & (max - 1);
	return &files[i];
}

/* Keeps the table at most half full. */
static int grow_files(struct proc_scan *s)
{
	size_t max = s->max_files ? 2 * s->max_files : 256;
	struct file_facts *files;

	if (2 * s->n_files < s->max_files)
		return 0;
	if (max > 2 * MAX_FILES) {	/* forget: that only costs time */
		memset(s->files, 0, s->max_files * sizeof(*s->files));
		s->n_files = 0;
		return 0;
	}
	files = calloc(max, sizeof(*files));
	if (!files)
		return -ENOMEM;
	for (size_t i = 0; i < s->max_files; i++) {
		if (s->files[i].inode)
			*file_slot(files, max, &s->files[i]) = s->files[i];
	}
	free(s->files);
	s->files = files;
	s->max_files = max;
	return 0;
}

/* ---- one file ---- */

static void read_build(const struct elfsyms *e, const Elf64_Sym *sym, struct file_facts *f)
{
	uint32_t build;

	/* The count of commits: 0 without git (it lies in .bss then), 1 in a shallow clone. */
	if (!elfsyms_read(e, sym->st_value, &build, sizeof(build)) && build > 1 && build < 10000000)
		f->llama_build = build;
}

/* An executable may have them in .symtab only: a static llama-server. */
static int read_static_symbols(const struct elfsyms *e, struct file_facts *f)
{
	const char *names[RECOGNISE_MAX_SYMBOLS + 1];
	Elf64_Sym syms[RECOGNISE_MAX_SYMBOLS + 1];
	size_t n = n_recognise_symbols;
	int found;

	memcpy(names, recognise_symbols, n * sizeof(names[0]));
	names[n] = build_number;
	found = elfsyms_find_static(e, names, n + 1, syms);
	if (found == -ENOMEM)
		return found;
	f->symtab = elfsyms_has_symtab(e);
	for (size_t i = 0; found > 0 && i < n; i++) {
		if (syms[i].st_name)
			f->symbols |= 1u << i;
	}
	if (found > 0 && syms[n].st_name && !f->llama_build)
		read_build(e, &syms[n], f);
	return 0;
}

static int read_file(int fd, struct file_facts *f)
{
	struct elfsyms e;
	Elf64_Sym sym;

	if (elfsyms_open(fd, &e))
		return 0;	/* mapped executable, but no ELF file: nothing to find */
	for (size_t i = 0; i < n_recognise_symbols; i++) {
		if (!elfsyms_find(&e, recognise_symbols[i], &sym))
			f->symbols |= 1u << i;
	}
	if (!elfsyms_find(&e, build_number, &sym))
		read_build(&e, &sym, f);
	return f->is_exe ? read_static_symbols(&e, f) : 0;
}

/* ---- the mapped files of one process ---- */

struct reading {
	struct proc_scan *scan;
	struct proc_facts *facts;
	pid_t pid;
	uint32_t symbols;
	size_t max_libs;
	int err;		/* -EACCES once a file could not be opened */
};

static int add_lib(struct reading *r, const char *path)
{
	struct proc_facts *f = r->facts;
	char **more;

	if (f->n_libs == r->max_libs) {
		r->max_libs = r->max_libs ? 2 * r->max_libs : 64;
		more = realloc(f->libs, r->max_libs * sizeof(*more));
		if (!more)
			return -ENOMEM;
		f->libs = more;
	}
	f->libs[f->n_libs] = strdup(path);
	if (!f->libs[f->n_libs])
		return -ENOMEM;
	f->n_libs++;
	return 0;
}

static bool is_libcuda(const char *path)
{
	const char *name = strrchr(path, '/');

	return !strncmp(name ? name + 1 : path, "libcuda.so", 10);
}

static bool is_exe(const struct proc_facts *f, const char *path)
{
	size_t len = strlen(f->exe);

	return len && !strncmp(path, f->exe, len) &&
	       (!path[len] || !strcmp(path + len, " (deleted)"));
}

static int read_map(void *ctx, const struct proc_map *map)
{
	struct reading *r = ctx;
	struct file_facts key = { .inode = map->inode,
				  .dev_major = map->dev_major,
				  .dev_minor = map->dev_minor };
	struct file_facts *file;
	char path[320];
	int err, fd;

	err = add_lib(r, map->path);
	if (err)
		return err;
	r->facts->has_cuda |= is_libcuda(map->path);
	key.is_exe = is_exe(r->facts, map->path);
	err = grow_files(r->scan);
	if (err)
		return err;
	file = file_slot(r->scan->files, r->scan->max_files, &key);
	if (!file->inode) {
		fd = proc_open_map(r->pid, map, path, sizeof(path));
		if (fd < 0) {
			r->err = fd == -EACCES || fd == -EPERM ? -EACCES : r->err;
			return 0;
		}
		err = read_file(fd, &key);
		close(fd);
		if (err)
			return err;
		*file = key;
		r->scan->n_files++;
	}
	if (file->symbols && !r->facts->symbols_in)
		r->facts->symbols_in = r->facts->libs[r->facts->n_libs - 1];
	r->symbols |= file->symbols;
	if (file->llama_build)
		r->facts->llama_build = file->llama_build;
	r->facts->exe_symtab |= file->symtab;
	return 0;
}

int proc_files__read(struct proc_scan *s, pid_t pid, struct proc_facts *f)
{
	struct reading r = { .scan = s, .facts = f, .pid = pid };
	int err;

	err = proc_each_exec_map(pid, read_map, &r);
	for (size_t i = 0; i < n_recognise_symbols; i++) {
		if (r.symbols >> i & 1)
			f->symbols[f->n_symbols++] = recognise_symbols[i];
	}
	return err ? err : r.err;
}

/* ---- Python packages ---- */

/* Distribution names are compared without case, and with '-', '_' and '.' alike. */
static bool same_package(const char *a, size_t a_len, const char *b, size_t b_len)
{
	for (size_t i = 0; i < a_len && i < b_len; i++) {
		char x = strchr("-.", a[i]) ? '_' : tolower((unsigned char)a[i]);
		char y = strchr("-.", b[i]) ? '_' : tolower((unsigned char)b[i]);

		if (x != y)
			return false;
	}
	return a_len == b_len;
}

/* A folder in which packages are installed, and the one of them that a library lies in. */
struct package_dir {
	char path[256];
	const char *package;	/* not ended by a NUL */
	size_t package_len;	/* 0: none in particular */
};

static const char *known_package(const char *name, size_t len)
{
	for (size_t i = 0; i < n_recognise_packages; i++) {
		if (same_package(name, len, recognise_packages[i], strlen(recognise_packages[i])))
			return recognise_packages[i];
	}
	return NULL;
}

/* "NAME-VERSION.dist-info" of a package that matters, as "name version". */
static int add_package(struct proc_facts *f, const struct package_dir *dir, const char *entry)
{
	const char *end = strstr(entry, ".dist-info"), *dash = strchr(entry, '-'), *known;
	char text[128], **more;

	if (!end || end[10] || !dash || dash > end || f->n_packages == MAX_PACKAGES)
		return 0;
	known = known_package(entry, dash - entry);
	if (known)
		snprintf(text, sizeof(text), "%s %.*s", known, (int)(end - dash - 1), dash + 1);
	else if (same_package(entry, dash - entry, dir->package, dir->package_len))
		snprintf(text, sizeof(text), "%.*s %.*s", (int)dir->package_len, dir->package,
			 (int)(end - dash - 1), dash + 1);
	else
		return 0;
	for (size_t i = 0; i < f->n_packages; i++) {
		if (!strcmp(f->packages[i], text))
			return 0;
	}
	more = realloc(f->packages, (f->n_packages + 1) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	f->packages = more;
	f->packages[f->n_packages] = strdup(text);
	if (!f->packages[f->n_packages])
		return -ENOMEM;
	f->n_packages++;
	return 0;
}

static int read_package_dir(pid_t pid, const struct package_dir *where, struct proc_facts *f)
{
	int fd = proc_open_in_root(pid, where->path, O_RDONLY | O_DIRECTORY), err = 0;
	struct dirent *d;
	DIR *dir;

	if (fd < 0)
		return fd == -EACCES || fd == -EPERM ? -EACCES : 0;
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return -ENOMEM;
	}
	while (!err && (d = readdir(dir)))
		err = add_package(f, where, d->d_name);
	closedir(dir);
	return err;
}

/* The folders that every Python on the library paths installs to. */
static int read_site_packages(pid_t pid, struct proc_facts *f)
{
	static const char *const kinds[] = { "/site-packages/", "/dist-packages/" };
	struct package_dir dirs[MAX_PACKAGE_DIRS] = { 0 };
	size_t n = 0, k;
	int err;

	for (size_t i = 0; i < 2 * f->n_libs && n < MAX_PACKAGE_DIRS; i++) {
		const char *lib = f->libs[i / 2], *at = strstr(lib, kinds[i % 2]);

		if (!at)
			continue;
		snprintf(dirs[n].path, sizeof(dirs[n].path), "%.*s", (int)(at - lib + 14), lib);
		for (k = 0; k < n && strcmp(dirs[k].path, dirs[n].path); k++)
			;
		if (k < n)
			continue;
		err = read_package_dir(pid, &dirs[n++], f);
		if (err)
			return err;
	}
	return 0;
}

/* `pip install --target` puts packages anywhere: DIR/PACKAGE/[SUBFOLDER/]libx.so */
static int read_library_packages(pid_t pid, struct proc_facts *f)
{
	const char *end = f->symbols_in ? strrchr(f->symbols_in, '/') : NULL;
	struct package_dir dir;
	int err;

	for (int i = 0; i < 2 && end; i++) {
		const char *slash = end == f->symbols_in
					    ? NULL
					    : memrchr(f->symbols_in, '/', end - f->symbols_in);

		if (!slash || slash == f->symbols_in)
			break;
		snprintf(dir.path, sizeof(dir.path), "%.*s", (int)(slash - f->symbols_in),
			 f->symbols_in);
		dir.package = slash + 1;
		dir.package_len = end - slash - 1;
		err = read_package_dir(pid, &dir, f);
		if (err)
			return err;
		end = slash;
	}
	return 0;
}

int proc_packages__read(pid_t pid, struct proc_facts *f)
{
	int err = read_site_packages(pid, f);

	return err ? err : read_library_packages(pid, f);
}
