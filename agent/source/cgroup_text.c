/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel writes about cgroups and their CPU quota, versions 1 and 2: text to numbers. */
#include "source/cgroup_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static size_t line_len(const char *s)
{
	return strcspn(s, "\n");
}

static const char *next_line(const char *s)
{
	s += line_len(s);
	return *s ? s + 1 : s;
}

/* Is `word` one of a list that commas part, which ends with the line? */
static bool has_word(const char *list, size_t len, const char *word)
{
	size_t want = strlen(word);

	for (size_t at = 0, n; at < len; at += n + 1) {
		n = strcspn(list + at, ",\n");
		if (at + n > len)
			n = len - at;
		if (n == want && !memcmp(list + at, word, n))
			return true;
	}
	return false;
}

/* "... ID ROOT DIR OPTIONS ... - TYPE SOURCE OPTIONS" */
static bool parse_mount(const char *line, struct cgroup_mount *ret)
{
	struct cgroup_mount m = { 0 };
	const char *end = line + line_len(line), *dash = strstr(line, " - "), *options;
	char type[16];
	int at = 0;

	if (!dash || dash > end || sscanf(dash, " - %15s %*s %n", type, &at) < 1 || !at)
		return false;
	options = dash + at;
	m.v1 = !strcmp(type, "cgroup");
	if (!m.v1 && strcmp(type, "cgroup2"))
		return false;
	if (m.v1 && (options > end || !has_word(options, end - options, "cpu")))
		return false;
	if (sscanf(line, "%*s %*s %*s %255s %127s", m.root, m.dir) != 2)
		return false;
	*ret = m;
	return true;
}

int cgroup_parse_mounts(const char *text, struct cgroup_mount *ret)
{
	struct cgroup_mount m;
	bool found = false;

	for (; *text; text = next_line(text)) {
		if (!parse_mount(text, &m) || (found && !m.v1))
			continue;
		*ret = m;
		found = true;
		if (m.v1)
			break;
	}
	return found ? 0 : -ENOENT;
}

int cgroup_parse_path(const char *text, bool v1, char *ret, size_t size)
{
	for (; *text; text = next_line(text)) {
		const char *end = text + line_len(text), *list = strchr(text, ':'), *path;

		path = list ? strchr(list + 1, ':') : NULL;
		if (!path || path > end || path[1] != '/')
			continue;
		list++;
		if (v1 ? !has_word(list, path - list, "cpu") : path != list)
			continue;
		path++;
		if ((size_t)(end - path) >= size)
			return -ENAMETOOLONG;
		memcpy(ret, path, end - path);
		ret[end - path] = '\0';
		return 0;
	}
	return -ENOENT;
}

int cgroup_dir(const struct cgroup_mount *m, const char *path, char *ret, size_t size)
{
	size_t skip = strcmp(m->root, "/") ? strlen(m->root) : 0;
	int n;

	if (skip && (strncmp(path, m->root, skip) || (path[skip] && path[skip] != '/')))
		return -ENOENT;
	path += skip;
	n = snprintf(ret, size, "%s%s", m->dir, !strcmp(path, "/") ? "" : path);
	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

int cgroup_parse_stat(const char *text, struct cgroup_stat *ret)
{
	struct cgroup_stat s = { 0 };
	uint64_t value;
	char name[32];
	int seen = 0;

	for (; *text; text = next_line(text)) {
		if (sscanf(text, "%31s %" SCNu64, name, &value) != 2)
			continue;
		if (!strcmp(name, "nr_periods"))
			s.n_periods = value;
		else if (!strcmp(name, "nr_throttled"))
			s.n_throttled = value;
		else if (!strcmp(name, "throttled_usec"))	/* version 2 */
			s.throttled_ns = value * 1000;
		else if (!strcmp(name, "throttled_time"))	/* version 1, ns */
			s.throttled_ns = value;
		else
			continue;
		seen++;
	}
	if (seen != 3)
		return -EINVAL;
	*ret = s;
	return 0;
}

int cgroup_parse_max(const char *text, uint64_t *ret_quota_us, uint64_t *ret_period_us)
{
	uint64_t quota, period;

	if (sscanf(text, "max %" SCNu64, &period) == 1)
		quota = 0;
	else if (sscanf(text, "%" SCNu64 " %" SCNu64, &quota, &period) != 2 || !period)
		return -EINVAL;
	*ret_quota_us = quota;
	*ret_period_us = period;
	return 0;
}
