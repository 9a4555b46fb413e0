/* SPDX-License-Identifier: Apache-2.0 */
/* The report as text, and a sentence on one request: what GPUs did. */
#include "base/plural.h"
#include "base/units.h"
#include "base/util.h"
#include "model/evidence.h"
#include "model/gpu.h"
#include "model/gpu_bubbles.h"
#include "sink/gpu_words.h"
#include "sink/notes_priv.h"
#include "sink/text_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum { TOP_KERNELS = 8, MAX_HOST = 3, MAX_DIFFERENT = 4 };

/* ---- how it was seen ---- */

static const char *level_text(uint16_t level)
{
	static const char *const names[] = {
		[TL_GPU_OFF] = "nothing was collected", [TL_GPU_LAUNCHES] = "launches only",
		[TL_GPU_GRAPH] = "records of graphs and copies, not of single kernels",
		[TL_GPU_KERNELS] = "records of kernels, in windows",
	};

	return level < ARRAY_SIZE(names) ? names[level] : "another level";
}

static void write_level(struct page *p, const struct model_view *v, const struct gpu_health_sum *s)
{
	uint64_t launches = v->gpu && v->gpu->counts.launches > s->launches ? v->gpu->counts.launches : s->launches;
	const char *simulated = s->simulated ? "SIMULATED, no real device: " : "";
	const char *wanted = level_text(s->wanted ? s->wanted : s->level);
	char dropped[40] = "none lost";

	if (s->dropped)
		snprintf(dropped, sizeof(dropped), "%" PRIu64 " lost", s->dropped);
	page__style(p, s->n_broken ? STYLE_BAD : STYLE_PLAIN);
	if (s->records)
		page__para(p, "GPU", LABEL, "%sserver %u: %s; %" PRIu64 " record%s, %s", simulated, s->server,
			   level_text(s->level), s->records, plural_s(s->records), dropped);
	else if (launches)
		page__para(p, "GPU", LABEL, "%sserver %u: %" PRIu64 " launch%s and no record: what the GPU did is NOT "
			   "KNOWN (wanted: %s)", simulated, s->server, launches, plural(launches, "", "es"), wanted);
	else
		page__para(p, "GPU", LABEL, "%sserver %u: no record, and %s (wanted: %s)", simulated, s->server, s->no_probes ?
			   "launches are not seen: what the GPU did is NOT KNOWN" : "no launch was seen: there was no work for "
			   "the GPU", wanted);
	page__style(p, STYLE_PLAIN);
}

/* ---- devices ---- */

/* ", in 3 windows between 512.1 and 9023.4 ms" */
static const char *windows_text(const struct model_view *v, uint32_t tgid, char *buf, size_t size)
{
	const struct gpu_time *first = NULL, *last = NULL;
	size_t n = 0;

	for (size_t i = 0; i < v->gpu->n_windows; i++) {
		if (v->gpu->windows[i].tgid != tgid)
			continue;
		first = first ? first : &v->gpu->windows[i];
		last = &v->gpu->windows[i];
		n++;
	}
	*buf = '\0';
	if (n)
		snprintf(buf, size, ", in %zu window%s between %.1f and %.1f ms", n, plural_s(n), ms_since(v, first->t0_ns),
			 ms_since(v, last->t1_ns));
	return buf;
}

static void write_device(struct page *p, const struct model_view *v, const struct gpu_device *d)
{
	double seen = (double)d->seen_ns;
	char span[UNITS_LEN], missed[UNITS_LEN], windows[96], shares[160] = "", left[120] = "";

	if (d->missed_ns * 100 > d->seen_ns)	/* the edges of windows are not worth a word */
		snprintf(left, sizeof(left), "; of %s more it is NOT KNOWN: what was launched then has no record",
			 units_ns(missed, d->missed_ns));
	if (!d->seen_ns)
		snprintf(shares, sizeof(shares), "what it did is NOT KNOWN");
	else if (d->at_least)
		snprintf(shares, sizeof(shares), "busy at least %.1f %%, idle NOT KNOWN, as kernels outside of graphs have no "
			 "record", 100.0 * (double)d->busy_ns / seen);
	else
		snprintf(shares, sizeof(shares), "busy %.1f %%, idle %.1f %%, copies alone %.1f %%",
			 100.0 * (double)d->busy_ns / seen, 100.0 * (seen - (double)d->busy_ns) / seen,
			 100.0 * (double)d->copy_ns / seen);
	if (d->seen_ns && d->wait_ns != GPU_UNKNOWN)
		snprintf(shares + strlen(shares), sizeof(shares) - strlen(shares), ", waiting for other ranks %.1f %%",
			 100.0 * (double)d->wait_ns / seen);
	page__para(p, "", LABEL, "device %u of pid %u (rank %u): %s, of %s in which records were taken%s%s", d->device, d->tgid,
		   d->rank, shares, units_ns(span, d->seen_ns), windows_text(v, d->tgid, windows, sizeof(windows)), left);
}

/* ---- holes ---- */

/* "host 12.3 ms, garbage collection 1.2 ms": what threads did in holes between steps, longest first. */
static const char *host_text(const struct gpu_bubbles *b, char *buf, size_t size)
{
	bool told[N_MECHANISMS] = { false };
	size_t n = 0;

	buf[0] = '\0';
	for (int i = 0; i < MAX_HOST; i++) {
		int best = -1;
		char ms[UNITS_LEN];

		for (int m = 0; m < N_MECHANISMS; m++)
			if (!told[m] && b->by_ns[m] && (best < 0 || b->by_ns[m] > b->by_ns[best]))
				best = m;
		if (best < 0)
			break;
		told[best] = true;
		n += (size_t)snprintf(buf + n, size - n, "%s%s %s", n ? ", " : "", mechanism_labels[best],
				      units_ns(ms, b->by_ns[best]));
		if (n >= size)
			break;
	}
	return buf;
}

struct to {
	struct page *p;
	const struct model_view *v;
};

static void write_bubbles(void *ctx, uint32_t engine, const struct gpu_bubbles *b)
{
	const struct to *to = ctx;
	char idle[UNITS_LEN], between[UNITS_LEN], host[200], padded[80] = "";
	double all = (double)(b->busy_ns + b->idle_ns);
	struct page *p = to->p;

	if (b->n_steps && all > 0) {
		host_text(b, host, sizeof(host));
		page__para(p, "", LABEL, "while pid %u had work, its device was idle for %s%.1f %% (%s in %zu step%s), %s of it "
			   "between steps%s%s", to->v->engines[engine].e.hdr.tgid, b->at_most ? "at most " : "", 100.0 * (double)b->idle_ns / all,
			   units_ns(idle, b->idle_ns), b->n_steps, plural_s(b->n_steps), units_ns(between, b->between_ns),
			   *host ? "; the host then: " : b->between_ns ? "; nothing was seen to hold up the host then" : "",
			   host);
	}
	if (b->n_padded) /* sizes of graphs are told by the batches that they ran only */
		snprintf(padded, sizeof(padded), ", at least %zu of them padded to a larger batch", b->n_padded);
	if (b->n_hit || b->n_padded)
		page__para(p, "", LABEL, "graphs: %zu step%s replayed%s; %zu launched kernel by kernel",
			   b->n_hit + b->n_padded, plural_s(b->n_hit + b->n_padded), padded, b->n_eager);
}

/* ---- kernels ---- */

/* Below its row, where devices differ by 10 % or more in what it takes: "1202 (pid 11): 120.3". */
static void write_differences(struct page *p, const struct gpu_facts *g, const struct gpu_kernel *k)
{
	const struct gpu_kernel_on *on = &g->kernels_on[k->first_on];
	uint64_t least = UINT64_MAX, most = 0;
	char text[200];
	size_t at = 0;

	for (size_t i = 0; i < k->n_on; i++) {
		least = on[i].p50_ns < least ? on[i].p50_ns : least;
		most = on[i].p50_ns > most ? on[i].p50_ns : most;
	}
	if (k->n_on < 2 || 10 * (most - least) < least)
		return;
	for (size_t i = 0; i < k->n_on && i < MAX_DIFFERENT && on[i].tgid && at < sizeof(text); i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%.1f on %u of pid %u", i ? ", " : "", (double)on[i].p50_ns / 1e3,
				       on[i].device, on[i].tgid);
	if (k->n_on > MAX_DIFFERENT && at < sizeof(text))
		snprintf(text + at, sizeof(text) - at, " ...");
	fprintf(p->out, "%30s", "");
	page__text(p, "p50 us by device: ", 48, text);
}

static void write_kernels(struct page *p, const struct gpu_facts *g)
{
	bool told[256] = { false };
	size_t n = g->n_kernels < ARRAY_SIZE(told) ? g->n_kernels : ARRAY_SIZE(told);
	uint64_t all = 0;
	bool at_least = false;

	for (size_t i = 0; i < g->n_kernels; i++)
		all += g->kernels[i].total_ns;
	if (!all)
		return;
	if (g->n_devices > 1)
		page__para(p, "", LABEL, "kernels, of all %zu devices together:", g->n_devices);
	for (size_t i = 0; i < g->n_devices && !at_least; i++)
		at_least = g->devices[i].at_least;
	if (at_least)
		page__para(p, "", LABEL, "kernels outside of graphs (prefill as a rule, sampling) are not in the table: at level "
			   "graph they have no record");
	page__heading(p, "%10s%8s%10s%10s  %-10s %s", "ms on GPU", "share", "n", "p50 us", "phase", "kernel");
	for (int k = 0; k < TOP_KERNELS; k++) {
		const struct gpu_kernel *best = NULL;

		for (size_t i = 0; i < n; i++)
			if (!told[i] && (!best || g->kernels[i].total_ns > best->total_ns))
				best = &g->kernels[i];
		if (!best)
			break;
		told[best - g->kernels] = true;
		fprintf(p->out, "%10.3f%7.1f%%%10" PRIu64 "%10.1f  %-10s %s\n", (double)best->total_ns / 1e6,
			100.0 * (double)best->total_ns / (double)all, best->n, (double)best->p50_ns / 1e3,
			gpu_phase_name(best->phase) ? gpu_phase_name(best->phase) : "-", best->name);
		write_differences(p, g, best);
	}
	if (g->n_kernels > TOP_KERNELS)
		fprintf(p->out, "%10s%8s%10s%10s  and %zu more: --json has all of them\n", "", "", "", "",
			g->n_kernels - TOP_KERNELS);
}

/* ---- the whole of it ---- */

int text_gpu(struct page *p, const struct model_view *v)
{
	char unseen[UNITS_LEN], all[UNITS_LEN];
	struct gpu_healths *h;
	int err = gpu_healths__new(v, &h);

	if (err)
		return err;
	for (size_t i = 0; i < v->n_engines; i++)
		if (gpu_healths__of(h, i))
			write_level(p, v, gpu_healths__of(h, i));
	gpu_healths__free(h);
	if (v->gpu && v->gpu->unseen_ns)
		page__para(p, "", LABEL, "for %s of %s nobody looked for single kernels: the probes on them cost more than "
			   "--gpu-budget allows, and were taken off; how many were launched then is NOT KNOWN, graphs, waits "
			   "and copies are", units_ns(unseen, v->gpu->unseen_ns), units_ns(all, v->t1_ns - v->t0_ns));
	if (!v->gpu || !v->gpu->n_steps)
		return 0;
	for (size_t i = 0; i < v->gpu->n_devices; i++)
		write_device(p, v, &v->gpu->devices[i]);
	err = gpu_bubbles_each(v, write_bubbles, &(struct to){ p, v });
	if (v->gpu->n_inferred_steps)
		page__para(p, "", LABEL, "%zu step%s made of launches, as the wire tells of none: who was in them is "
			   "inferred from when tokens were written, prompts from how long steps took",
			   v->gpu->n_inferred_steps, plural(v->gpu->n_inferred_steps, " is", "s are"));
	if (v->gpu->counts.not_kept)
		page__para(p, "", LABEL, "%" PRIu64 " %s more than is held in memory, and left out",
			   v->gpu->counts.not_kept, plural(v->gpu->counts.not_kept, "launch or record was", "launches or records were"));
	write_kernels(p, v->gpu);
	return err;
}
