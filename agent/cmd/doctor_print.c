/* SPDX-License-Identifier: Apache-2.0 */
/* How doctor shows what it found: text, and JSON of the same. */
#include "cmd/doctor.h"

#include "base/jsonw.h"
#include "base/vec.h"
#include "cmd/log.h"
#include "cmd/screen.h"
#include "cmd/vllm_server.h"
#include "sink/page.h"
#include "source/probes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *const states[] = {
	[CHECK_OK] = "ok", [CHECK_INFO] = "info", [CHECK_WARN] = "warn", [CHECK_BAD] = "no",
};

static const char *tiers(bool t1)
{
	return t1 ? "T0+T1" : "T0";
}

/* ---- text ---- */

enum { NARROW = 80, NARROW_INDENT = 6 };

/* No spaces at the end of a line that has no text; on a narrow page the text goes below. */
static void print_line(struct page *p, int width, const char *name, const char *state, const char *text)
{
	char label[64];

	if (!*text || p->width < NARROW)
		printf(*state ? "  %-*s  %s\n" : "  %.*s\n", *state ? width : 60, name, state);
	if (!*text)
		return;
	snprintf(label, sizeof(label), "  %-*s  %-4s  ", width, name, state);
	if (p->width < NARROW)
		page__para(p, "", NARROW_INDENT, "%s", text);
	else
		page__para(p, label, width + 10, "%s", text);
}

static void print_checks(struct page *p, const char *title, const struct check_list *list)
{
	printf("\n%s\n", title);
	for (size_t i = 0; i < list->n; i++)
		print_line(p, 19, list->v[i].name,
			   list->v[i].state == CHECK_INFO ? "" : states[list->v[i].state],
			   list->v[i].text);
}

static void print_target(struct page *out, const struct found *f)
{
	const struct proc_facts *p = &f->facts;

	printf("\nprocess\n");
	printf("  %-26s  %s%s%s%s%s\n", "engine", engine_kind_name(f->id.engine),
	       *f->id.role ? ", " : "", f->id.role, *f->id.version ? ", " : "", f->id.version);
	if (*f->id.why)
		print_line(out, 20, "told by", "", f->id.why);
	if (f->ollama)
		printf("  %-26s  ollama pid %u\n", "run by", f->ollama);
	printf("  %-26s ", "ports");
	for (size_t i = 0; i < p->n_ports; i++)
		printf(" %u", p->ports[i]);
	printf("%s\n", p->n_ports ? "" : p->ports_unknown ? " not known" : " none");
	if (p->other_mnt_ns || p->other_pid_ns)
		printf("  %-26s  other than ours, pid %u inside\n", "namespaces", p->pid_inside);
	if (p->deleted_exe)
		printf("  %-26s  was deleted or replaced since the process started\n",
		       "executable");
	if (recognise_hides_traffic(p))
		print_line(out, 19, "io_uring", "warn", "part of its traffic may be unseen");
	if (f->refused)
		print_line(out, 19, "readable", "warn",
			   "not all of it: some files or sockets are unknown");
}

/* A reason that several probes give, "" if there is none. */
static const char *common_reason(const struct doctor *d)
{
	for (size_t i = 0; i < n_probes && i < DOCTOR_MAX_PROBES; i++) {
		const struct outcome *o = &d->outcomes[i];

		for (size_t k = 0; k < i && o->asked && o->err; k++)
			if (d->outcomes[k].asked && d->outcomes[k].err && !doctor_not_needed(d, i) &&
			    !doctor_not_needed(d, k) && !strcmp(d->outcomes[k].reason, o->reason))
				return o->reason;
	}
	return "";
}

static void print_probe(struct page *p, const struct doctor *d, size_t i, const char *common)
{
	const struct outcome *o = &d->outcomes[i];
	char name[32], text[300];

	snprintf(name, sizeof(name), "%-20s %s", probes[i].name,
		 probes[i].tier == TL_T0 ? "T0" : "T1");
	if (!o->err)
		print_line(p, 23, name, "ok", o->reason);
	else if (doctor_not_needed(d, i))
		print_line(p, 23, name, "-", "not in this build, nor needed");
	else {
		bool said = !strcmp(o->reason, common);

		snprintf(text, sizeof(text), "%s%slost: %s", said ? "" : o->reason, said ? "" : "; ",
			 probes[i].lost_without);
		print_line(p, 23, name, "no", text);
	}
}

/* How the steps of an engine of this host are seen, "" if they are not. */
static void step_source(const struct doctor *d, size_t i, char *ret, size_t size)
{
	const struct found *f = &d->found.found[i];

	snprintf(ret, size, "%s", d->engine_t1[i] ? "steps: probes" : "");
	if (f->id.engine == TL_ENGINE_VLLM) {
		char source[48];

		vllm_step_source(&d->found, f, source, sizeof(source));
		snprintf(ret, size, "steps: %s", source);
	}
}

static void print_loss(struct page *p, uint32_t pid, const char *name, const char *text)
{
	char label[16];

	snprintf(label, sizeof(label), "  %-7u ", pid);
	page__para(p, label, 10, "%s: %s", name, text);
}

/* What is lost of the servers that lose something. */
static int print_losses(struct page *p, const struct doctor *d)
{
	for (size_t i = 0; i < d->found.n; i++) {
		struct check_list list = { 0 };
		struct vllm_server s;
		int err = 0;

		if (vllm_server_look(&d->found, d->found.found[i].facts.pid, &s))
			err = vllm_server_checks(&s, &list);
		for (size_t k = 0; k < list.n; k++)
			if (list.v[k].state == CHECK_WARN)
				print_loss(p, s.server, list.v[k].name, list.v[k].text);
		vec_free(&list);
		if (err)
			return err;
	}
	return 0;
}

static int print_engines(struct page *p, const struct doctor *d)
{
	int err;

	if (!d->found.n || d->pid)
		return 0;
	printf("\nengines\n");
	for (size_t i = 0; i < d->found.n; i++) {
		const struct found *f = &d->found.found[i];
		char source[64], label[80];

		step_source(d, i, source, sizeof(source));
		snprintf(label, sizeof(label), "  %-7u %-12s %-12s  ", f->facts.pid,
			 engine_kind_name(f->id.engine), f->id.role);
		page__para(p, label, (int)strlen(label), "%s%s%s", d->t0 ? tiers(d->engine_t1[i]) : "-",
			   *source ? ", " : "", source);
	}
	err = print_losses(p, d);
	printf("  `tokenlag doctor -p PID` says more of each.\n");
	return err;
}

static int print_text(const struct doctor *d)
{
	const char *common = common_reason(d);
	char title[48];
	struct page p;

	page__init(&p, &(struct text_opts){ .width = screen_width() }, stdout);
	page__para(&p, "", 0, "%s", d->verdict);
	if (d->pid)
		print_target(&p, &d->target);
	if (d->server.n) {
		snprintf(title, sizeof(title), "server, pid %u", d->target.server);
		print_checks(&p, title, &d->server);
	}
	if (d->gpu.n)
		print_checks(&p, "GPU", &d->gpu);
	print_checks(&p, "kernel", &d->kernel);
	print_checks(&p, "user", &d->user);
	printf("\nprobes\n");
	if (d->check_err < 0)
		printf("  could not be asked: %s\n", strerror(-d->check_err));
	if (*common)
		page__para(&p, "  ", 2, "%s", common);
	for (size_t i = 0; i < n_probes && i < DOCTOR_MAX_PROBES; i++) {
		if (d->outcomes[i].asked)
			print_probe(&p, d, i, common);
	}
	return print_engines(&p, d);
}

/* ---- JSON ---- */

static int to_stdout(void *ctx, const char *data, size_t len)
{
	(void)ctx;
	return fwrite(data, 1, len, stdout) == len ? 0 : -EIO;
}

static void text_or_null(struct jsonw *w, const char *key, const char *s)
{
	jsonw__key(w, key);
	jsonw__str(w, s && *s ? s : NULL);
}

static void checks_json(struct jsonw *w, const char *key, const struct check_list *list)
{
	jsonw__key(w, key);
	jsonw__array(w);
	for (size_t i = 0; i < list->n; i++) {
		jsonw__object(w);
		text_or_null(w, "name", list->v[i].name);
		text_or_null(w, "state", states[list->v[i].state]);
		text_or_null(w, "text", list->v[i].text);
		jsonw__end_object(w);
	}
	jsonw__end_array(w);
}

static void tiers_json(struct jsonw *w, bool t0, bool t1)
{
	jsonw__key(w, "tiers");
	jsonw__array(w);
	if (t0)
		jsonw__str(w, "T0");
	if (t1)
		jsonw__str(w, "T1");
	jsonw__end_array(w);
}

static void engine_json(struct jsonw *w, const struct found *f, bool t0, bool t1)
{
	jsonw__object(w);
	jsonw__key(w, "pid");
	jsonw__u64(w, f->facts.pid);
	text_or_null(w, "kind", engine_kind_name(f->id.engine));
	text_or_null(w, "role", f->id.role);
	text_or_null(w, "version", f->id.version);
	text_or_null(w, "why", f->id.why);
	tiers_json(w, t0, t1);
	jsonw__end_object(w);
}

static void probe_json(struct jsonw *w, const struct doctor *d, size_t i)
{
	const struct outcome *o = &d->outcomes[i];

	jsonw__object(w);
	text_or_null(w, "name", probes[i].name);
	text_or_null(w, "tier", probes[i].tier == TL_T0 ? "T0" : "T1");
	text_or_null(w, "state", !o->err ? "ok" : doctor_not_needed(d, i) ? "not needed" : "no");
	text_or_null(w, "reason", o->reason);
	text_or_null(w, "lost_without", probes[i].lost_without);
	jsonw__key(w, "required");
	jsonw__bool(w, probes[i].required);
	jsonw__end_object(w);
}

static int print_json(const struct doctor *d)
{
	struct jsonw w;

	jsonw__init(&w, to_stdout, NULL);
	jsonw__object(&w);
	jsonw__key(&w, "schema");
	jsonw__u64(&w, 1);
	text_or_null(&w, "verdict", d->verdict);
	tiers_json(&w, d->t0, d->t1);
	checks_json(&w, "server", &d->server);
	checks_json(&w, "gpu", &d->gpu);
	checks_json(&w, "kernel", &d->kernel);
	checks_json(&w, "user", &d->user);
	jsonw__key(&w, "probes");
	jsonw__array(&w);
	for (size_t i = 0; i < n_probes && i < DOCTOR_MAX_PROBES; i++) {
		if (d->outcomes[i].asked)
			probe_json(&w, d, i);
	}
	jsonw__end_array(&w);
	jsonw__key(&w, "engines");
	jsonw__array(&w);
	if (d->pid)
		engine_json(&w, &d->target, d->t0, d->t1);
	for (size_t i = 0; !d->pid && i < d->found.n; i++)
		engine_json(&w, &d->found.found[i], d->t0, d->engine_t1[i]);
	jsonw__end_array(&w);
	jsonw__end_object(&w);
	jsonw__newline(&w);
	return jsonw__finish(&w);
}

int doctor_print(const struct doctor *d)
{
	int err = 0;

	if (d->json)
		err = print_json(d);
	else
		err = print_text(d);
	if (!err && fflush(stdout))
		err = -errno;
	if (err)
		log_error("doctor: cannot write: %s", strerror(-err));
	return err;
}
