/* SPDX-License-Identifier: Apache-2.0 */
/* Probes on the libcuda of processes: loads the programs, attaches them by
 * inode, tells what they cost. */
#include "cuda.skel.h"
#include "net.skel.h"
#include "source/bpf_priv.h"
#include "source/cuda_priv.h"
#include "source/proc.h"
#include "tl_event.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { DEFAULT_BUDGET_PPM = 10000, MAX_FILES = 4, MAX_PROBES = 1024, WHY_BYTES = 160 };

static size_t shared_bytes(size_t bytes)
{
	size_t page = sysconf(_SC_PAGESIZE);

	return (bytes + page - 1) / page * page;
}

static void *map_shared(struct bpf_map *map, size_t bytes)
{
	void *mem = mmap(NULL, shared_bytes(bytes), PROT_READ | PROT_WRITE, MAP_SHARED,
			 bpf_map__fd(map), 0);

	return mem == MAP_FAILED ? NULL : mem;
}

static void unmap_shared(void *mem, size_t bytes)
{
	if (mem)
		munmap(mem, shared_bytes(bytes));
}

static int load(struct cuda *c)
{
	struct net_bpf *net = c->bpf->net;
	struct bpf_program *prog;
	int err;

	c->skel = cuda_bpf__open();
	if (!c->skel)
		return -errno;
	c->multi = bpf_uprobe_has_multi() && !c->opts.one_by_one;
	bpf_object__for_each_program(prog, c->skel->obj) {
		bpf_program__set_autoload(prog, true);
		bpf_uprobe_prepare(prog, c->multi);
	}
	c->skel->rodata->wakeup_bytes = net->rodata->wakeup_bytes;
	err = bpf_map__reuse_fd(c->skel->maps.events, bpf_map__fd(net->maps.events));
	err = err ? err : bpf_map__reuse_fd(c->skel->maps.cells, bpf_map__fd(net->maps.cells));
	err = err ? err : cuda_bpf__load(c->skel);
	if (err)
		return err;
	c->tallies = map_shared(c->skel->maps.tallies, CUDA_MAX_PROCESSES * sizeof(*c->tallies));
	if (c->tallies)
		c->bursts = map_shared(c->skel->maps.bursts, CUDA_MAX_BURSTS * sizeof(*c->bursts));
	return c->tallies && c->bursts ? 0 : -errno;
}

int cuda__open(struct src_bpf *bpf, const struct cuda_opts *opts, struct cuda **ret,
	       const char **why)
{
	struct cuda *c = calloc(1, sizeof(*c));
	int err = -ENOMEM;

	*why = "out of memory";
	if (!c)
		return err;
	c->bpf = bpf;
	c->opts = *opts;
	if (!c->opts.kernel_budget_ppm)
		c->opts.kernel_budget_ppm = DEFAULT_BUDGET_PPM;
	err = load(c);
	if (err) {
		if (err != -ENOMEM)
			*why = err == -EPERM || err == -EACCES ?
				"not allowed to load BPF programs: run as root, or with CAP_BPF and CAP_PERFMON" :
				"this kernel refuses the programs that watch CUDA calls";
		cuda__close(c);
		return err;
	}
	bpf->cuda = c->skel->obj;
	*ret = c;
	return 0;
}

static void free_process(struct cuda_process *p)
{
	bpf_uprobe_detach(p->probes.v, p->probes.n);
	cuda_kernels_detach(p);
	for (size_t i = 0; i < p->files.n; i++)
		if (p->files.v[i].fd >= 0)
			close(p->files.v[i].fd);
	vec_free(&p->files);
	vec_free(&p->probes);
	vec_free(&p->kernel_probes);
	free(p);
}

/* The kernel takes its time for each probe, but lets many go at the same time. */
static void detach_all(struct cuda *c)
{
	struct bpf_uprobe *all;
	size_t n = 0;

	if (c->everyone)
		return;		/* all are its */
	for (size_t i = 0; i < c->processes.n; i++)
		n += c->processes.v[i]->probes.n + c->processes.v[i]->kernel_probes.n;
	all = malloc((n + 1) * sizeof(*all));
	if (!all)
		return;		/* one process after the other, then */
	n = 0;
	for (size_t i = 0; i < c->processes.n; i++) {
		struct cuda_probes *parts[] = { &c->processes.v[i]->probes,
						&c->processes.v[i]->kernel_probes };

		for (int k = 0; k < 2; k++) {
			for (size_t j = 0; j < parts[k]->n; j++)
				all[n++] = parts[k]->v[j];
			parts[k]->n = 0;
		}
	}
	bpf_uprobe_detach(all, n);
	free(all);
}

void cuda__close(struct cuda *c)
{
	if (!c)
		return;
	detach_all(c);
	for (size_t i = 0; i < c->processes.n; i++)
		free_process(c->processes.v[i]);
	vec_free(&c->processes);
	if (c->everyone)
		free_process(c->everyone);
	c->bpf->cuda = NULL;
	unmap_shared(c->bursts, CUDA_MAX_BURSTS * sizeof(*c->bursts));
	unmap_shared(c->tallies, CUDA_MAX_PROCESSES * sizeof(*c->tallies));
	cuda_bpf__destroy(c->skel);
	free(c);
}

/* ---- processes ---- */

static struct cuda_process *find(const struct cuda *c, uint32_t tgid)
{
	for (size_t i = 0; i < c->processes.n; i++) {
		if (c->processes.v[i]->tgid == tgid)
			return c->processes.v[i];
	}
	return NULL;
}

/* 0: there is none left. */
static uint16_t free_slot(const struct cuda *c)
{
	for (uint16_t slot = CUDA_TRIAL_SLOT + 1; slot < CUDA_MAX_PROCESSES; slot++) {
		bool used = false;

		for (size_t i = 0; i < c->processes.n && !used; i++)
			used = c->processes.v[i]->slot == slot;
		if (!used)
			return slot;
	}
	return 0;
}

static struct cuda_process *new_process(struct cuda *c, uint32_t tgid)
{
	struct cuda_process *p = calloc(1, sizeof(*p)), **at;
	uint16_t slot = free_slot(c);

	at = p && slot ? vec_push(&c->processes, CUDA_MAX_PROCESSES) : NULL;
	if (!at) {
		free(p);
		return NULL;
	}
	*p = (struct cuda_process){ .tgid = tgid, .slot = slot };
	*at = p;
	cuda_budget_begin(c, p, monotonic_ns());
	return p;
}

/* The one that has the probes for a process; NULL: out of memory. */
static struct cuda_process *owner_of(struct cuda *c, struct cuda_process *p)
{
	if (c->multi)
		return p;
	if (!c->everyone) {
		c->everyone = calloc(1, sizeof(*c->everyone));
		if (!c->everyone)
			return NULL;
		*c->everyone = (struct cuda_process){ .tgid = CUDA_EVERYONE, .slot = CUDA_ANY };
		cuda_budget_begin(c, c->everyone, monotonic_ns());
	}
	return c->everyone;
}

static bool has_file(const struct cuda_process *p, const struct proc_map *map)
{
	for (size_t i = 0; i < p->files.n; i++) {
		const struct cuda_file *f = &p->files.v[i];

		if (f->inode == map->inode && f->dev_major == map->dev_major &&
		    f->dev_minor == map->dev_minor)
			return true;
	}
	return false;
}

/* ---- attaching ---- */

/* Number of functions, or -errno. */
static int attach(struct cuda *c, const struct cuda_process *p, struct bpf_program *prog,
		  bool is_return, int fd, const struct bpf_uprobe_place *places, size_t n,
		  struct cuda_probes *to)
{
	struct bpf_uprobe made[CUDA_MAX_PLACES], *at;
	size_t n_made = 0, kept = 0;
	int got = 0;

	if (n)
		got = bpf_uprobe_attach_all(prog, c->multi, p->tgid, fd, places, n, is_return, made,
					    &n_made);
	while (kept < n_made && (at = vec_push(to, MAX_PROBES)))
		*at = made[kept++];
	if (kept == n_made)
		return got;
	bpf_uprobe_detach(made + kept, n_made - kept);
	return -ENOMEM;
}

static int attach_kernels(struct cuda *c, struct cuda_process *p, const struct cuda_file *f)
{
	int n = attach(c, p, c->skel->progs.cuda_launch, false, f->fd, f->kernels, f->n_kernels,
		       &p->kernel_probes);

	p->n_kernel_functions += n > 0 ? n : 0;
	return n;
}

int cuda_kernels_attach(struct cuda *c, struct cuda_process *p)
{
	for (size_t i = 0; i < p->files.n; i++) {
		int n = attach_kernels(c, p, &p->files.v[i]);

		if (n < 0) {
			cuda_kernels_detach(p);
			return n;
		}
	}
	return p->n_kernel_functions;
}

void cuda_kernels_detach(struct cuda_process *p)
{
	bpf_uprobe_detach(p->kernel_probes.v, p->kernel_probes.n);
	p->kernel_probes.n = 0;
	p->n_kernel_functions = 0;
}

/* Returns before entries: of a call whose entry is seen, the return will be. */
static int attach_rest(struct cuda *c, struct cuda_process *p, int fd,
		       const struct cuda_places *places)
{
	const struct bpf_uprobe_place *timed = places->at[CUDA_TIMED],
				      *launches = places->at[CUDA_LAUNCHES];
	int n_timed, n_launches;

	n_timed = attach(c, p, c->skel->progs.cuda_leave, true, fd, timed, places->n[CUDA_TIMED],
			 &p->probes);
	if (n_timed >= 0)
		n_timed = attach(c, p, c->skel->progs.cuda_enter, false, fd, timed,
				 places->n[CUDA_TIMED], &p->probes);
	if (n_timed < 0)
		return n_timed;
	n_launches = attach(c, p, c->skel->progs.cuda_launch, false, fd, launches,
			    places->n[CUDA_LAUNCHES], &p->probes);
	return n_launches < 0 ? n_launches : n_timed + n_launches;
}

struct adding {
	struct cuda *c;
	struct cuda_process *p;
	char *why;
};

static const char *name_of(const struct proc_map *map)
{
	const char *slash = strrchr(map->path, '/');

	return slash ? slash + 1 : map->path;
}

static void say_dear(const struct adding *a, const struct proc_map *map,
		     const struct cuda_places *places)
{
	size_t n = 0;

	for (int g = 0; g < N_CUDA_GROUPS; g++)
		n += places->n_dear[g];
	if (n)
		snprintf(a->why, WHY_BYTES,
			 "%.30s: %zu functions cost %u us a call: the kernel single-steps '%s' (%.30s)",
			 name_of(map), n, (cuda_hit_ns(a->c, true) + 500) / 1000, places->dear_insn,
			 places->dear);
}

/* `owner` gets the probes. */
static int probe_file(struct adding *a, struct cuda_process *owner, const struct proc_map *map,
		      int fd)
{
	struct cuda *c = a->c;
	struct cuda_places places;
	struct cuda_file *f;
	int n, err = cuda_places_find(fd, owner->slot, owner == c->everyone, &places);

	if (err) {
		snprintf(a->why, WHY_BYTES, "%.40s has none of the functions that are probed",
			 name_of(map));
		return err == -ENOENT ? err : -ENOEXEC;
	}
	if (!c->priced)
		cuda_price_measure(c->skel->progs.cuda_launch, c->multi, cuda_trial_cookie(),
				   &c->tallies[CUDA_TRIAL_SLOT].mode, &c->price);
	c->priced = true;
	f = vec_push(&owner->files, MAX_FILES);
	if (!f)
		return owner->files.n == MAX_FILES ? -ENOENT : -ENOMEM;
	*f = (struct cuda_file){ map->inode, map->dev_major, map->dev_minor, fcntl(fd, F_DUPFD_CLOEXEC, 0),
				 .n_kernels = c->opts.no_kernels ? 0 : places.n[CUDA_KERNELS] };
	memcpy(f->kernels, places.at[CUDA_KERNELS], sizeof(f->kernels));
	owner->kernels_dear |= places.n_dear[CUDA_KERNELS] > 0;
	n = attach_rest(c, owner, fd, &places);
	if (n < 0)
		return n;
	owner->n_functions += n;
	if (owner->level != CUDA_LEVEL_OFF)
		n = attach_kernels(c, owner, f);
	if (owner == c->everyone)
		snprintf(a->why, WHY_BYTES, "allocations, loads of code and rare copies are not probed: on this kernel "
			 "each probe takes long to come off");
	say_dear(a, map, &places);
	return n < 0 ? n : 0;
}

static int add_file(struct adding *a, const struct proc_map *map, int fd)
{
	struct cuda_process *p = a->p, *owner = owner_of(a->c, p);
	int err = owner ? 0 : -ENOMEM;
	struct cuda_file *f;

	if (owner && !has_file(owner, map))
		err = probe_file(a, owner, map, fd);
	if (err || owner == p)
		return err == -ENOENT || err == -ENOEXEC ? 0 : err;
	f = vec_push(&p->files, MAX_FILES);
	if (!f)
		return p->files.n == MAX_FILES ? 0 : -ENOMEM;
	*f = (struct cuda_file){ .inode = map->inode, .dev_major = map->dev_major, .dev_minor = map->dev_minor,
				 .fd = -1 };
	return 0;
}

static int on_map(void *ctx, const struct proc_map *map)
{
	struct adding *a = ctx;
	char path[512];
	int fd, err;

	if (!cuda_is_library(map->path) || has_file(a->p, map))
		return 0;
	fd = proc_open_map(a->p->tgid, map, path, sizeof(path));
	if (fd < 0) {
		bool refused = fd == -EACCES || fd == -EPERM;

		snprintf(a->why, WHY_BYTES, "%.40s cannot be read: %s%s", name_of(map),
			 strerror(-fd), refused ? ": run as root, or with CAP_SYS_PTRACE" : "");
		return 0;
	}
	err = add_file(a, map, fd);
	close(fd);
	return err;
}

static void say_error(int err, char *why)
{
	const char *text = "the kernel refused to probe its libcuda";

	if (err == -ESRCH)
		text = "the process is gone";
	else if (err == -EPERM || err == -EACCES)
		text = "not allowed: run as root, or with CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE";
	else if (err == -ENOMEM)
		text = "out of memory";
	snprintf(why, WHY_BYTES, "%s", text);
}

/* For probes that stand in every process. */
static int be_known(struct cuda *c, const struct cuda_process *p)
{
	uint32_t slot = p->slot;

	return c->multi ? 0
			: bpf_map__update_elem(c->skel->maps.slots, &p->tgid, sizeof(p->tgid),
					       &slot, sizeof(slot), BPF_ANY);
}

int cuda__add(struct cuda *c, uint32_t tgid, char why[160])
{
	struct cuda_process *p = find(c, tgid);
	struct adding a = { .c = c, .p = p ? p : new_process(c, tgid), .why = why };
	int err;

	why[0] = '\0';
	if (!a.p) {
		say_error(-ENOMEM, why);
		return -ENOMEM;
	}
	err = be_known(c, a.p);
	err = err ? err : proc_each_exec_map(tgid, on_map, &a);
	if (err)
		say_error(err, why);
	p = a.p;
	if (err || !p->files.n) {	/* half probed is not probed */
		cuda__del(c, tgid);
		return err ? err : -ENOENT;
	}
	p = c->multi ? p : c->everyone;
	return p->n_functions + p->n_kernel_functions;
}

void cuda__del(struct cuda *c, uint32_t tgid)
{
	size_t kept = 0;

	for (size_t i = 0; i < c->processes.n; i++) {
		struct cuda_process *p = c->processes.v[i];

		if (p->tgid == tgid)
			free_process(p);
		else
			c->processes.v[kept++] = p;
	}
	c->processes.n = kept;
	if (c->multi)
		return;
	bpf_map__delete_elem(c->skel->maps.slots, &tgid, sizeof(tgid), 0);
	if (!kept && c->everyone) {
		free_process(c->everyone);
		c->everyone = NULL;
	}
}

/* ---- while it runs ---- */

int cuda__poll(struct cuda *c, uint64_t now_ns, const struct emit *out)
{
	int err = cuda_bursts_say(c, now_ns, out);

	if (c->everyone)
		return err ? err : cuda_budget_poll(c, c->everyone, now_ns, out);
	for (size_t i = 0; i < c->processes.n && !err; i++)
		err = cuda_budget_poll(c, c->processes.v[i], now_ns, out);
	return err;
}

void cuda__cost(const struct cuda *c, struct cuda_cost *ret)
{
	*ret = (struct cuda_cost){ 0 };
	for (uint32_t slot = CUDA_TRIAL_SLOT + 1; slot < CUDA_MAX_PROCESSES; slot++) {
		const struct cuda_tally *t = &c->tallies[slot];

		ret->run_ns += t->run_ns;
		ret->runs += t->runs;
		ret->paid_ns += (t->runs - t->dear_runs) * cuda_hit_ns(c, false) +
				t->dear_runs * cuda_hit_ns(c, true);
		ret->launches += t->kernels;
		ret->graph_launches += t->graphs;
		ret->syncs += t->syncs;
	}
	for (size_t i = 0; i < c->processes.n; i++) {
		const struct cuda_process *p = c->everyone ? c->everyone : c->processes.v[i];

		ret->kernels_off |= p->level == CUDA_LEVEL_OFF && !c->opts.no_kernels;
		ret->kernels_counted |= p->level == CUDA_LEVEL_COUNTED && !c->opts.count_kernels;
	}
	ret->per_hit_ns = c->price.cheap_ns;
	ret->dear_hit_ns = c->price.dear_ns;
}
