/* SPDX-License-Identifier: Apache-2.0 */
/* `tokenlag list`: the engines of this host. */
#include "base/jsonw.h"
#include "base/plural.h"
#include "base/str.h"
#include "base/units.h"
#include "base/util.h"
#include "base/vec.h"
#include "cmd/cmd.h"
#include "cmd/log.h"
#include "cmd/screen.h"
#include "cmd/vllm_server.h"
#include "cmd/vllm_wires.h"
#include "sink/page.h"
#include "source/discover.h"
#include "source/now.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct list_opts {
	bool json;
};

static const struct argp_option options[] = {
	{ "json", 'j', NULL, 0, "Print JSON", 0 },
	{ 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct list_opts *o = state->input;

	switch (key) {
	case 'j':
		o->json = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "unexpected argument '%s': list takes none", arg);
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

/* ---- text ---- */

enum column { PID, KIND, VERSION, ROLE, PORTS, UPTIME, GPUS, TIERS, WHERE, N_COLUMNS };
static const char *const titles[] = { "PID",    "KIND", "VERSION", "ROLE", "PORTS",
				      "UPTIME", "GPUS", "TIERS",   "WHERE" };
struct row {
	char cell[N_COLUMNS][48];
};

static void put_ports(char *cell, size_t size, const struct found *f)
{
	enum { SHOWN = 3 };
	size_t at = 0;

	if (!f->facts.n_ports) {
		str_copy(cell, size, f->facts.ports_unknown ? "?" : "-");
		return;
	}
	for (size_t i = 0; i < f->facts.n_ports && i < SHOWN; i++)
		at += snprintf(cell + at, size - at, "%s%u", i ? "," : "", f->facts.ports[i]);
	if (f->facts.n_ports > SHOWN)
		snprintf(cell + at, size - at, "+%zu", f->facts.n_ports - SHOWN);
}

static void put_gpus(char *cell, size_t size, const struct found *f)
{
	size_t at = 0;

	str_copy(cell, size, f->facts.has_cuda ? "cuda" : "-");
	for (unsigned int i = 0; i < 64 && at + 4 < size; i++) {
		if (f->facts.gpus >> i & 1)
			at += snprintf(cell + at, size - at, "%s%u", at ? "," : "", i);
	}
}

static void put_where(char *cell, size_t size, const struct found *f)
{
	recognise_container(f->facts.cgroup, cell, size);
	if (!*cell && (f->facts.other_mnt_ns || f->facts.other_pid_ns))
		str_copy(cell, size, "other namespace");
}

static void fill(struct row *r, const struct found *f, uint64_t now)
{
	const struct proc_facts *p = &f->facts;
	char text[UNITS_LEN];

	snprintf(r->cell[PID], sizeof(r->cell[PID]), "%u", p->pid);
	if (p->pid_inside != p->pid)
		snprintf(r->cell[PID], sizeof(r->cell[PID]), "%u (%u)", p->pid, p->pid_inside);
	str_copy(r->cell[KIND], sizeof(r->cell[KIND]), engine_kind_name(f->id.engine));
	str_copy(r->cell[VERSION], sizeof(r->cell[VERSION]), *f->id.version ? f->id.version : "?");
	snprintf(r->cell[ROLE], sizeof(r->cell[ROLE]), "%s%s", f->server == p->pid ? "" : "  ",
		 f->id.role);
	put_ports(r->cell[PORTS], sizeof(r->cell[PORTS]), f);
	str_copy(r->cell[UPTIME], sizeof(r->cell[UPTIME]),
		 p->start_ns && now > p->start_ns ? units_ns(text, now - p->start_ns) : "?");
	put_gpus(r->cell[GPUS], sizeof(r->cell[GPUS]), f);
	str_copy(r->cell[TIERS], sizeof(r->cell[TIERS]),
		 recognise_tiers(p, &f->id) & TL_T1 ? "T0+T1" : "T0");
	put_where(r->cell[WHERE], sizeof(r->cell[WHERE]), f);
}

/* The widths of the columns; 0: left out, the least needed first, until the rest fits the page. */
static void fit_columns(const struct row *rows, size_t n, int page_width, int width[N_COLUMNS])
{
	static const enum column droppable[] = { GPUS, UPTIME, WHERE, VERSION, PORTS };
	int total = -2;

	for (int c = 0; c < N_COLUMNS; c++) {
		width[c] = 0;
		for (size_t i = 0; i < n; i++) {
			int len = strlen(rows[i].cell[c]);

			width[c] = len > width[c] ? len : width[c];
		}
		total += 2 + width[c];
	}
	for (size_t i = 0; i < ARRAY_SIZE(droppable) && total > page_width; i++) {
		total -= 2 + width[droppable[i]];
		width[droppable[i]] = 0;
	}
}

static void print_rows(struct page *p, const struct row *rows, size_t n)
{
	char left_out[80] = "";
	int width[N_COLUMNS], at = 0;

	fit_columns(rows, n, p->width, width);
	for (size_t i = 0; i < n; i++) {
		int last = PID;

		for (int c = PID + 1; c < N_COLUMNS; c++)
			last = width[c] && *rows[i].cell[c] ? c : last;
		printf("%*s", width[PID], rows[i].cell[PID]);
		for (int c = PID + 1; c <= last; c++)
			if (width[c])
				printf("  %-*s", c == last ? 0 : width[c], rows[i].cell[c]);
		putchar('\n');
	}
	for (int c = 0; c < N_COLUMNS; c++)
		if (!width[c])
			at += snprintf(left_out + at, sizeof(left_out) - at, "%s%s", at ? ", " : "",
				       titles[c]);
	if (at)
		page__para(p, "", 0, "Columns left out: %s (wider terminal or COLUMNS=120).", left_out);
}

/* Where the steps of a vLLM server are seen, and what its flags hide. */
static int print_vllm(struct page *p, const struct discovery *d, uint32_t pid)
{
	struct check_list checks = { 0 };
	struct vllm_server s;
	int err;

	if (!vllm_server_look(d, pid, &s))
		return 0;
	err = vllm_server_checks(&s, &checks);
	for (size_t i = 0; i < checks.n; i++)
		if (checks.v[i].state == CHECK_WARN || !strcmp(checks.v[i].name, "steps"))
			page__para(p, "", 0, "%u: %s: %s.", pid, checks.v[i].name, checks.v[i].text);
	vec_free(&checks);
	return err;
}

/* What a column cannot say. */
static void print_notes(struct page *out, const struct found *f)
{
	const struct proc_facts *p = &f->facts;

	if (f->ollama)
		page__para(out, "", 0, "%u: run by ollama pid %u.", p->pid, f->ollama);
	if (!strcmp(f->id.role, "library") && f->server == p->pid)
		page__para(out, "", 0, "%u: embeds %s, no listening socket: there are no requests to see.",
		       p->pid, engine_kind_name(f->id.engine));
	else if (f->id.engine == TL_ENGINE_LLAMA && !(recognise_tiers(p, &f->id) & TL_T1) &&
		 !f->refused)
		page__para(out, "", 0, "%u: its steps cannot be seen (%s).", p->pid, f->id.why);
	if (recognise_hides_traffic(p))
		page__para(out, "", 0, "%u: uses io_uring, part of its traffic may be unseen.", p->pid);
	if (p->deleted_exe)
		page__para(out, "", 0, "%u: its executable was deleted or replaced since it started.", p->pid);
	if (log_get_level() >= LOG_VERBOSE)
		page__para(out, "", 0, "%u: %s; %s", p->pid, f->id.why, *p->exe ? p->exe : "executable unknown");
}

/* In one line, however many they are. */
static void print_half_read(struct page *p, const struct discovery *d)
{
	char pids[400] = "";
	size_t n = 0;
	int at = 0;

	for (size_t i = 0; i < d->n; i++) {
		if (!d->found[i].refused)
			continue;
		n++;
		if (at < (int)sizeof(pids) - 16)
			at += snprintf(pids + at, sizeof(pids) - at, "%s%u", at ? ", " : "",
				       d->found[i].facts.pid);
	}
	if (n)
		page__para(p, "", 0, "%s: not allowed to read all of %s%s.", pids,
			   plural(n, "it", "them"), geteuid() ? ": run as root" : "");
}

/* Most processes were not seen at all: the first line must not sound like an answer. */
static bool is_blind(const struct discovery *d)
{
	return 2 * d->n_refused > d->n_processes;
}

/* "24 of 25 processes could not be read: run as root to see all." */
static const char *refused_text(const struct discovery *d, char *buf, size_t size)
{
	snprintf(buf, size, "%zu of %zu process%s could not be read%s", d->n_refused, d->n_processes, plural(d->n_processes, "", "es"),
		 geteuid() ? ": run as root to see all." : ", not even as root.");
	return buf;
}

static int print_text(const struct discovery *d)
{
	struct row *rows = calloc(d->n + 1, sizeof(*rows));
	uint64_t now = monotonic_ns();
	char refused[120];
	struct page p;
	int err = 0;

	if (!rows)
		return -ENOMEM;
	page__init(&p, &(struct text_opts){ .width = screen_width() }, stdout);
	refused_text(d, refused, sizeof(refused));
	if (!d->n) {
		page__para(&p, "", 0,
			   "No engine found%s%s%s none of %zu process%s looks like llama.cpp, Ollama, "
			   "vLLM, SGLang, TGI or TensorRT-LLM (by title, command, libraries and "
			   "symbols); start one, or ask `tokenlag doctor -p PID` about the process "
			   "that should be one.",
			   is_blind(d) ? ", but " : ":", is_blind(d) ? refused : "",
			   is_blind(d) ? " Of the rest," : "", d->n_processes - d->n_refused,
			   plural(d->n_processes - d->n_refused, "", "es"));
	} else {
		page__para(&p, "", 0, "%zu engine%s found, %zu process%s%s%s", d->n_servers,
			   plural_s(d->n_servers), d->n, plural(d->n, "", "es"),
			   is_blind(d) ? "; " : ".", is_blind(d) ? refused : "");
		putchar('\n');
		for (int c = 0; c < N_COLUMNS; c++)
			str_copy(rows[0].cell[c], sizeof(rows[0].cell[c]), titles[c]);
		for (size_t i = 0; i < d->n; i++)
			fill(&rows[i + 1], &d->found[i], now);
		print_rows(&p, rows, d->n + 1);
		putchar('\n');
		for (size_t i = 0; i < d->n && !err; i++) {
			print_notes(&p, &d->found[i]);
			err = print_vllm(&p, d, d->found[i].facts.pid);
		}
		print_half_read(&p, d);
	}
	if (d->n_refused && !is_blind(d))
		page__para(&p, "", 0, "%s", refused);
	free(rows);
	return err;
}

/* ---- JSON ---- */

static int to_stdout(void *ctx, const char *data, size_t len)
{
	(void)ctx;
	return fwrite(data, 1, len, stdout) == len ? 0 : -EIO;
}

static void str_or_null(struct jsonw *w, const char *key, const char *s)
{
	jsonw__key(w, key);
	jsonw__str(w, *s ? s : NULL);
}

static void u64_or_null(struct jsonw *w, const char *key, uint64_t v)
{
	jsonw__key(w, key);
	if (v)
		jsonw__u64(w, v);
	else
		jsonw__null(w);
}

static void engine_json(struct jsonw *w, const struct discovery *d, const struct found *f,
			uint64_t now)
{
	const struct proc_facts *p = &f->facts;
	uint32_t tiers = recognise_tiers(p, &f->id);
	char where[48], steps[48];

	jsonw__object(w);
	u64_or_null(w, "pid", p->pid);
	u64_or_null(w, "pid_inside", p->pid_inside);
	u64_or_null(w, "server_pid", f->server);
	u64_or_null(w, "ollama_pid", f->ollama);
	str_or_null(w, "kind", engine_kind_name(f->id.engine));
	str_or_null(w, "version", f->id.version);
	str_or_null(w, "role", f->id.role);
	str_or_null(w, "why", f->id.why);
	str_or_null(w, "exe", p->exe);
	jsonw__key(w, "ports");
	if (p->ports_unknown) {
		jsonw__null(w);
	} else {
		jsonw__array(w);
		for (size_t i = 0; i < p->n_ports; i++)
			jsonw__u64(w, p->ports[i]);
		jsonw__end_array(w);
	}
	u64_or_null(w, "start_ns", p->start_ns);
	u64_or_null(w, "uptime_ms",
		    p->start_ns && now > p->start_ns ? (now - p->start_ns) / 1000000 : 0);
	jsonw__key(w, "gpus");
	jsonw__array(w);
	for (unsigned int i = 0; i < 64; i++) {
		if (p->gpus >> i & 1)
			jsonw__u64(w, i);
	}
	jsonw__end_array(w);
	jsonw__key(w, "cuda");
	jsonw__bool(w, p->has_cuda);
	jsonw__key(w, "tiers");
	jsonw__array(w);
	jsonw__str(w, "T0");
	if (tiers & TL_T1)
		jsonw__str(w, "T1");
	jsonw__end_array(w);
	str_copy(steps, sizeof(steps), tiers & TL_T1 ? "probes" : "none");
	if (f->id.engine == TL_ENGINE_VLLM)
		vllm_step_source(d, f, steps, sizeof(steps));
	str_or_null(w, "steps", steps);
	recognise_container(p->cgroup, where, sizeof(where));
	str_or_null(w, "container", where);
	jsonw__key(w, "other_mount_namespace");
	jsonw__bool(w, p->other_mnt_ns);
	jsonw__key(w, "io_uring");
	jsonw__bool(w, p->uses_io_uring);
	jsonw__key(w, "deleted_executable");
	jsonw__bool(w, p->deleted_exe);
	jsonw__key(w, "unreadable");
	jsonw__bool(w, f->refused);
	jsonw__end_object(w);
}

static int print_json(const struct discovery *d)
{
	uint64_t now = monotonic_ns();
	struct jsonw w;

	jsonw__init(&w, to_stdout, NULL);
	jsonw__object(&w);
	jsonw__key(&w, "schema");
	jsonw__u64(&w, 1);
	jsonw__key(&w, "processes");
	jsonw__object(&w);
	jsonw__key(&w, "seen");
	jsonw__u64(&w, d->n_processes);
	jsonw__key(&w, "unreadable");
	jsonw__u64(&w, d->n_refused);
	jsonw__end_object(&w);
	jsonw__key(&w, "engines");
	jsonw__array(&w);
	for (size_t i = 0; i < d->n; i++)
		engine_json(&w, d, &d->found[i], now);
	jsonw__end_array(&w);
	jsonw__end_object(&w);
	jsonw__newline(&w);
	return jsonw__finish(&w);
}

int cmd_list(int argc, char **argv)
{
	static const struct argp_child children[] = { { &log_argp, 0, "Messages:", -1 }, { 0 } };
	static const struct argp argp = {
		options,
		parse,
		NULL,
		"List the LLM engines that run on this host: what they are, where they listen and "
		"what could be attached (T0: sockets and syscalls, which show the steps of vLLM too; "
		"T1: also probes in the engine, which show the steps of llama.cpp).\v"
		"Example: tokenlag list --json | jq '.engines[].pid'",
		children,
		NULL,
		NULL,
	};
	struct list_opts o = { 0 };
	struct discovery d = { 0 };
	int err;

	argp_parse(&argp, argc, argv, 0, NULL, &o);
	err = discover(&d);
	err = err ? err : vllm_wires_join(&d);
	if (err) {
		log_error("list: cannot read /proc: %s", strerror(-err));
		return CMD_FAILED;
	}
	err = o.json ? print_json(&d) : print_text(&d);
	if (!err && fflush(stdout))
		err = -errno;
	if (err == -ENOMEM)
		log_error("list: out of memory");
	else if (err)
		log_error("list: cannot write: %s", strerror(-err));
	discovery__free(&d);
	return err ? CMD_FAILED : CMD_OK;
}
