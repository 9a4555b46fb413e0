/* SPDX-License-Identifier: Apache-2.0 */
/* Which request a person means: by number, or by an id that they found in some log. */
#include "sink/find.h"
#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { MAX_CANDIDATES = 8 }; /* that a message names */

/* How well does an id fit? 2: equal, 1: begins so, 0: not. */
static int id_fits(const char *id, const char *what, size_t len)
{
	if (!*id || strncmp(id, what, len) != 0)
		return 0;
	return id[len] ? 1 : 2;
}

static int request_fits(const struct rec_request *r, const char *what, size_t len)
{
	int a = id_fits(r->id, what, len), b = id_fits(r->x_request_id, what, len);
	int c = id_fits(r->traceparent, what, len);

	a = a > b ? a : b;
	return a > c ? a : c;
}

bool find_is_number(const char *what, uint64_t *ret)
{
	if (*what == 'r' || *what == 'R')
		what++;
	return *what >= '0' && *what <= '9' && !str_parse_u64(what, ret);
}

/* One that has a number, but is no LLM's: NULL if there is none. */
static const struct rec_other *find_other(const struct model_view *v, const char *what)
{
	uint64_t number;

	if (!find_is_number(what, &number))
		return NULL;
	for (size_t i = 0; i < v->n_others; i++)
		if (v->others[i].req == number)
			return &v->others[i];
	return NULL;
}

static bool find_number(const struct model_view *v, const char *what, size_t *ret)
{
	uint64_t number;

	if (!find_is_number(what, &number))
		return false;
	for (size_t i = 0; i < v->n_requests; i++)
		if (v->requests[i].req == number) {
			*ret = i;
			return true;
		}
	return false;
}

static void list_candidates(const struct model_view *v, const char *what, int fit, size_t n,
			    char *why, size_t size)
{
	size_t len = strlen(what), named = 0;
	int at = snprintf(why, size, "'%.80s' is the beginning of %zu requests:", what, n);

	for (size_t i = 0; i < v->n_requests && at > 0 && (size_t)at < size; i++) {
		if (request_fits(&v->requests[i], what, len) != fit)
			continue;
		if (named++ == MAX_CANDIDATES) {
			snprintf(why + at, size - (size_t)at, " ...; say more of it");
			return;
		}
		at += snprintf(why + at, size - (size_t)at, " r%u", v->requests[i].req);
	}
	if (at > 0 && (size_t)at < size)
		snprintf(why + at, size - (size_t)at, "; name one of them");
}

int find_request(const struct model_view *v, const char *what, size_t *ret, char *why, size_t size)
{
	size_t len = strlen(what), n[3] = { 0 }, first[3] = { 0 };
	const struct rec_other *other;

	if (find_number(v, what, ret))
		return 0;
	for (size_t i = 0; len && i < v->n_requests; i++) {
		int fit = request_fits(&v->requests[i], what, len);

		if (!n[fit]++)
			first[fit] = i;
	}
	for (int fit = 2; fit >= 1; fit--) {
		if (n[fit] == 1) {
			*ret = first[fit];
			return 0;
		}
		if (n[fit] > 1) {
			list_candidates(v, what, fit, n[fit], why, size);
			return -ENOTUNIQ;
		}
	}
	other = find_other(v, what);
	if (other)
		snprintf(why, size, "'%.80s' was %s, no request to an LLM: only its time is known",
			 what, *other->path ? other->path : "of another kind");
	else if (v->n_requests)
		snprintf(why, size,
			 "no request '%.80s'; there are r%u to r%u, see 'tokenlag report'", what,
			 v->requests[0].req, v->requests[v->n_requests - 1].req);
	else
		snprintf(why, size, "no request '%.80s': the recording holds no requests", what);
	return -ENOENT;
}
