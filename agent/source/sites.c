/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the functions that are probed in the files that a process maps. */
#include "source/sites.h"
#include "source/elfsyms.h"
#include "source/probes.h"
#include "source/proc.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	MAX_SYMBOLS = 64,	/* of all rows, alternatives too */
	MAX_SITES = 256,
	MAX_FDS = 32,
	CODE_BYTES = 64,
};

/* The symbols to look for: names[i] is an alternative of row rows[i]. */
struct wanted {
	const char *names[MAX_SYMBOLS];
	size_t rows[MAX_SYMBOLS];
	size_t n;
	char *text;		/* what names point into */
};

struct finder {
	pid_t pid;
	uint64_t exe_inode;
	struct wanted wanted;
	struct sites *out;
};

static bool in_user_space(const struct probe *p)
{
	return p->type == PROBE_UPROBE || p->type == PROBE_URETPROBE;
}

static int list_wanted(struct wanted *w, uint16_t engine)
{
	size_t len = 1;
	char *at, *save;

	for (size_t i = 0; i < n_probes; i++)
		len += strlen(probes[i].target) + 1;
	w->text = at = calloc(1, len);
	if (!at)
		return -ENOMEM;
	for (size_t i = 0; i < n_probes; i++) {
		if (!in_user_space(&probes[i]) || (engine && probes[i].engine != engine))
			continue;
		strcpy(at, probes[i].target);
		len = strlen(at);
		for (char *name = strtok_r(at, " ", &save); name && w->n < MAX_SYMBOLS;
		     name = strtok_r(NULL, " ", &save)) {
			w->names[w->n] = name;
			w->rows[w->n++] = i;
		}
		at += len + 1;
	}
	return 0;
}

static bool has_site(const struct sites *s, size_t row, int fd)
{
	for (size_t i = 0; i < s->n; i++) {
		if (s->sites[i].row == row && s->sites[i].fd == fd)
			return true;
	}
	return false;
}

static int add_site(struct sites *s, size_t row, int fd, const struct elfsyms *e, uint64_t addr,
		    const char *path)
{
	const char *slash = strrchr(path, '/');
	uint8_t code[CODE_BYTES];
	struct site *more;
	struct site site = { .row = row, .fd = fd };
	ssize_t len;

	if (s->n == MAX_SITES || elfsyms_code_offset(e, addr, &site.offset))
		return 0;
	/* Also brings the page in: ext4 warns when the kernel has to read it for the breakpoint. */
	len = pread(fd, code, sizeof(code), site.offset);
	if (len < 0)
		return -errno;
	insn_x86_64_place(code, len, probes[row].n_args, &site.place);
	site.offset += site.place.offset;
	snprintf(site.file, sizeof(site.file), "%.63s", slash ? slash + 1 : path);
	more = realloc(s->sites, (s->n + 1) * sizeof(*s->sites));
	if (!more)
		return -ENOMEM;
	s->sites = more;
	s->sites[s->n++] = site;
	return 0;
}

/* All rows in one file. Without exported ones among them, .symtab is read only where it is likely
 * to tell: in the executable, and in files named after the engine. */
static int find_in_file(struct finder *f, const struct proc_map *map, int fd)
{
	const struct wanted *w = &f->wanted;
	Elf64_Sym syms[MAX_SYMBOLS], *sym;
	bool likely = map->inode == f->exe_inode || strstr(map->path, "llama");
	struct elfsyms e;
	int err;

	if (elfsyms_open(fd, &e))
		return 0;
	memset(syms, 0, sizeof(syms));
	for (size_t i = 0; i < w->n; i++)
		likely |= !elfsyms_find(&e, w->names[i], &syms[i]);
	if (map->inode == f->exe_inode)
		f->out->stripped = !elfsyms_has_symtab(&e);
	if (likely) {
		Elf64_Sym more[MAX_SYMBOLS];

		if (elfsyms_find_static(&e, w->names, w->n, more) > 0) {
			for (size_t i = 0; i < w->n; i++)
				syms[i] = syms[i].st_value ? syms[i] : more[i];
		}
	}
	for (size_t i = 0; i < w->n; i++) {
		sym = &syms[i];
		if (!sym->st_value || ELF64_ST_TYPE(sym->st_info) != STT_FUNC ||
		    has_site(f->out, w->rows[i], fd))
			continue;
		err = add_site(f->out, w->rows[i], fd, &e, sym->st_value, map->path);
		if (err)
			return err;
	}
	return 0;
}

static int on_map(void *ctx, const struct proc_map *map)
{
	struct finder *f = ctx;
	struct sites *s = f->out;
	size_t before = s->n;
	char path[512];
	int fd, err;

	fd = proc_open_map(f->pid, map, path, sizeof(path));
	if (fd < 0) {
		s->n_unreadable++;
		return 0;
	}
	s->n_files++;
	err = s->n_fds < MAX_FDS ? find_in_file(f, map, fd) : 0;
	if (s->n == before)
		close(fd);
	else
		s->fds[s->n_fds++] = fd;
	return err;
}

static uint64_t exe_inode(pid_t pid)
{
	struct stat st;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/exe", pid);
	return stat(path, &st) ? 0 : st.st_ino;
}

int sites__find(pid_t pid, uint16_t engine, struct sites *ret)
{
	struct sites s = { .fds = calloc(MAX_FDS, sizeof(*s.fds)) };
	struct finder f = { .pid = pid, .exe_inode = exe_inode(pid), .out = &s };
	int err = -ENOMEM;

	if (s.fds)
		err = list_wanted(&f.wanted, engine);
	if (!err)
		err = proc_each_exec_map(pid, on_map, &f);
	free(f.wanted.text);
	if (err) {
		sites__free(&s);
		return err;
	}
	*ret = s;
	return 0;
}

void sites__free(struct sites *s)
{
	for (size_t i = 0; i < s->n_fds; i++)
		close(s->fds[i]);
	free(s->fds);
	free(s->sites);
	*s = (struct sites){ 0 };
}

size_t sites__describe(const struct sites *s, size_t row, char *buf, size_t size)
{
	const struct site *first = NULL;
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++) {
		if (s->sites[i].row != row)
			continue;
		first = first ? first : &s->sites[i];
		n++;
	}
	if (first)
		snprintf(buf, size, "%s+0x%lx, %s%s", first->file, first->offset, first->place.insn,
			 first->place.cheap ? ""
					    : ": about 10 us a call, the kernel single-steps it");
	else
		snprintf(buf, size, "no function %s in the %zu files that the process maps%s%s",
			 probes[row].target, s->n_files,
			 s->stripped ? " (its executable is stripped)" : "",
			 s->n_unreadable ? ", some of which could not be read" : "");
	return n;
}
