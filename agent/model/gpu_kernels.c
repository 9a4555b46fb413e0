/* SPDX-License-Identifier: Apache-2.0 */
/* What ran on devices, summed by name and phase, on each of them and together. */
#include "base/hist.h"
#include "model/state.h"

#include <errno.h>
#include <stdio.h>

enum {
	MAX_KERNELS = 4096,
	MAX_DEVICES = 16,	/* of one process, that are told apart */
	MAX_ON = 16384		/* kernels and devices: each has histograms of its own */
};

struct kernel_on {		/* on one device of one process; tgid 0: on those that are not told apart */
	uint32_t tgid, device;
	struct hist hist[N_GPU_PHASES];
};
struct kernel {
	char name[64];
	bool collective, sampling;
	VEC(struct kernel_on) on;
	size_t rest;	/* index + 1 of that of those that are not told apart; 0: there are none */
};
enum { N_COPIES = 16 };
struct kernels {
	VEC(struct kernel) l;
	struct map *by_name;	/* a hash of the name, or the next number that is free -> index */
	size_t n_on;		/* of all of them */
	uint32_t graph, copy[N_COPIES], memset;	/* index + 1 of those without a name of their own, 0: not looked up */
};

/* FNV-1a */
static uint64_t hash_of(const char *name)
{
	uint64_t h = 0xcbf29ce484222325;

	for (; *name; name++)
		h = (h ^ (uint8_t)*name) * 0x100000001b3;
	return h;
}

static int kernel_at(struct kernels *ks, const char *name, uint32_t *ret)
{
	uint64_t key = hash_of(name);
	struct kernel *k;
	uint32_t *at;

	for (; (at = map__get(ks->by_name, key)); key++)
		if (!strcmp(ks->l.v[*at].name, name)) {
			*ret = *at;
			return 0;
		}
	*ret = UINT32_MAX;
	if (ks->l.n == MAX_KERNELS)
		return 0;
	at = map__put(ks->by_name, key, NULL);
	if (at)
		*at = ks->l.n;
	k = at ? vec_push(&ks->l, MAX_KERNELS) : NULL;
	if (!k)
		return -ENOMEM;
	snprintf(k->name, sizeof(k->name), "%s", name);
	k->collective = gpu_is_collective(k->name);
	k->sampling = gpu_is_sampling(k->name);
	*ret = ks->l.n - 1;
	return 0;
}

static const char *name_of_copy(const struct gpu_span *s)
{
	static const char *const names[] = { [1] = "memcpy HtoD", [2] = "memcpy DtoH", [8] = "memcpy DtoD",
					     [9] = "memcpy HtoH", [10] = "memcpy PtoP" };

	return s->copy < sizeof(names) / sizeof(*names) && names[s->copy] ? names[s->copy] : "memcpy";
}

/* *cached: index + 1 once it was looked up; 0: not yet, and again each time where there is no room. */
static int kernel_cached(struct kernels *ks, const char *name, uint32_t *cached, uint32_t *ret)
{
	int err = 0;

	*ret = *cached - 1;
	if (!*cached)
		err = kernel_at(ks, name, ret);
	if (!err)
		*cached = *ret + 1;
	return err;
}

static int kernel_of(struct kernels *ks, struct gpu_process *p, const struct gpu_span *s, uint32_t *ret)
{
	struct gpu_name *n = s->name ? &p->names.v[s->name - 1] : NULL;
	char name[64];

	if (s->what == TL_SPAN_GRAPH)
		return kernel_cached(ks, "CUDA graph", &ks->graph, ret);
	if (s->what == TL_SPAN_MEMSET)
		return kernel_cached(ks, "memset", &ks->memset, ret);
	if (s->what != TL_SPAN_KERNEL)
		return kernel_cached(ks, name_of_copy(s), &ks->copy[s->copy < N_COPIES ? s->copy : 0], ret);
	if (!n)
		return kernel_at(ks, "(name not known)", ret);
	if (!n->kernel)
		gpu_short_name(n->name, name, sizeof(name));
	return kernel_cached(ks, name, &n->kernel, ret);
}

static enum gpu_phase phase_of(const struct kernel *k, const struct gpu_span *s, const struct gpu_process *p,
			       const struct step_index *ix)
{
	uint32_t step = s->at ? p->bursts.v[s->at - 1].step : 0;

	if (s->what == TL_SPAN_MEMCPY || s->what == TL_SPAN_MEMSET)
		return GPU_COPY;
	if (k->collective)
		return GPU_COLLECTIVE;
	if (k->sampling)
		return GPU_SAMPLING;
	if (!step || !ix->v->steps[step - 1].n_members)
		return GPU_OUTSIDE;
	return ix->facts[step - 1].prefill ? GPU_PREFILL : GPU_DECODE;
}

static int by_phase(const void *pa, const void *pb)
{
	const struct gpu_kernel *a = pa, *b = pb;

	if (a->phase != b->phase)
		return a->phase < b->phase ? -1 : 1;
	if (a->total_ns != b->total_ns)
		return a->total_ns > b->total_ns ? -1 : 1;
	return strcmp(a->name, b->name);
}

static struct kernel_on *add_on(struct kernels *ks, struct kernel *k, uint32_t tgid, uint32_t device)
{
	struct kernel_on *on = vec_push(&k->on, SIZE_MAX);

	if (!on)
		return NULL;
	on->tgid = tgid;
	on->device = device;
	ks->n_on++;
	return on;
}

/* What ran of it on a device. Processes come one after the other, so it is one of the last. NULL: out of memory */
static struct kernel_on *kernel_on(struct kernels *ks, struct kernel *k, uint32_t tgid, uint32_t device)
{
	struct kernel_on *on;
	size_t n = 0;

	for (size_t i = k->on.n; i--; n++) {
		if (i + 1 == k->rest)
			continue;
		if (k->on.v[i].tgid != tgid || n > MAX_DEVICES)
			break;
		if (k->on.v[i].device == device)
			return &k->on.v[i];
	}
	if (n < MAX_DEVICES && ks->n_on < MAX_ON)
		return add_on(ks, k, tgid, device);
	if (k->rest)
		return &k->on.v[k->rest - 1];
	on = add_on(ks, k, 0, 0);
	k->rest = k->on.n;
	return on;
}

static int list_on(struct gpu_facts *f, const struct kernel_on *on, int phase)
{
	const struct hist *h = &on->hist[phase];

	if (h->n)
		f->kernels_on[f->n_kernels_on++] = (struct gpu_kernel_on){
			.tgid = on->tgid, .device = on->device, .n = h->n, .total_ns = h->sum, .p50_ns = hist__quantile(h, 500),
		};
	return h->n > 0;
}

/* All of a kernel in one phase: on each device, and together. */
static int list_kernel(struct gpu_facts *f, const struct kernel *from, int phase)
{
	struct gpu_kernel *k = &f->kernels[f->n_kernels];
	struct hist all = { .n = 0 };
	int err = 0;

	*k = (struct gpu_kernel){ .phase = (uint8_t)phase, .first_on = f->n_kernels_on };
	for (size_t i = 0; i < from->on.n; i++)
		k->n_on += list_on(f, &from->on.v[i], phase);
	if (!k->n_on)
		return 0;
	for (size_t i = 0; i < from->on.n && !err; i++)
		if (k->n_on > 1 && from->on.v[i].hist[phase].n)
			err = hist__merge(&all, &from->on.v[i].hist[phase]);
	if (k->n_on > 1 && !err) {
		k->n = all.n;
		k->total_ns = all.sum;
		k->p50_ns = hist__quantile(&all, 500);
	} else if (!err) {
		k->n = f->kernels_on[k->first_on].n;
		k->total_ns = f->kernels_on[k->first_on].total_ns;
		k->p50_ns = f->kernels_on[k->first_on].p50_ns;
	}
	hist__free(&all);
	memcpy(k->name, from->name, sizeof(k->name));
	f->n_kernels++;
	return err;
}

static int list_kernels(struct gpu_facts *f, const struct kernels *ks)
{
	int err = 0;

	f->kernels = calloc(ks->l.n * N_GPU_PHASES + 1, sizeof(*f->kernels));
	f->kernels_on = calloc(ks->n_on * N_GPU_PHASES + 1, sizeof(*f->kernels_on));
	if (!f->kernels || !f->kernels_on)
		return -ENOMEM;
	for (size_t i = 0; i < ks->l.n; i++)
		for (int ph = 0; ph < N_GPU_PHASES && !err; ph++)
			err = list_kernel(f, &ks->l.v[i], ph);
	qsort(f->kernels, f->n_kernels, sizeof(*f->kernels), by_phase);
	return err;
}

static int add_span(struct kernels *ks, struct gpu_process *p, const struct gpu_span *s, const struct step_index *ix)
{
	struct kernel_on *on;
	uint32_t at;
	int err = kernel_of(ks, p, s, &at);

	if (err || at == UINT32_MAX)
		return err;
	on = kernel_on(ks, &ks->l.v[at], p->tgid, s->device);
	if (!on)
		return -ENOMEM;
	return hist__add(&on->hist[phase_of(&ks->l.v[at], s, p, ix)], s->t1_ns - s->t0_ns, 1);
}

static void free_kernels(struct kernels *ks)
{
	for (size_t i = 0; i < ks->l.n; i++) {
		struct kernel *k = &ks->l.v[i];

		for (size_t j = 0; j < k->on.n; j++)
			for (int ph = 0; ph < N_GPU_PHASES; ph++)
				hist__free(&k->on.v[j].hist[ph]);
		vec_free(&k->on);
	}
	vec_free(&ks->l);
	map__free(ks->by_name);
}

int gpu_sum_kernels(struct model *m, const struct step_index *ix)
{
	struct kernels ks = { .by_name = map__new(sizeof(uint32_t), MAX_KERNELS) };
	int err = ks.by_name ? 0 : -ENOMEM;

	for (size_t i = 0; i < m->gpu_log.processes.n; i++) {
		struct gpu_process *p = &m->gpu_log.processes.v[i];

		for (size_t k = 0; k < p->spans.n && !err; k++)
			err = add_span(&ks, p, &p->spans.v[k], ix);
	}
	if (!err)
		err = list_kernels(&m->gpu, &ks);
	free_kernels(&ks);
	return err;
}
