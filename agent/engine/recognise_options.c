/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine's command line says of its limits, and of what it does not tell. */
#include "engine/recognise.h"

#include <ctype.h>
#include <string.h>

/* Is this argument the option, alone or with "=VALUE"? vLLM takes '_' for '-' in names.
 * *ret_end: what follows the name. */
static bool is_option(const char *arg, const char *name, const char **ret_end)
{
	size_t i = 0;

	for (; name[i]; i++)
		if ((arg[i] == '_' && i >= 2 ? '-' : arg[i]) != name[i])
			return false;
	*ret_end = arg + i;
	return !arg[i] || arg[i] == '=';
}

/* The value of `name VALUE` or `name=VALUE` among NUL-separated arguments, the last one if there
 * are several; NULL: not there. `other`: another name of it, or NULL. */
static const char *option(const struct proc_facts *f, const char *name, const char *other)
{
	const char *value = NULL, *end;

	for (size_t at = 0; at < f->cmdline_len; at += strlen(f->cmdline + at) + 1) {
		const char *arg = f->cmdline + at;

		if (!is_option(arg, name, &end) && !(other && is_option(arg, other, &end)))
			continue;
		if (*end == '=')
			value = end + 1;
		else if (at + strlen(arg) + 1 < f->cmdline_len)
			value = arg + strlen(arg) + 1;
	}
	return value;
}

static bool flag(const struct proc_facts *f, const char *name, const char *opposite)
{
	const char *end;
	bool on = false;

	for (size_t at = 0; at < f->cmdline_len; at += strlen(f->cmdline + at) + 1) {
		if (is_option(f->cmdline + at, name, &end))
			on = true;
		else if (opposite && is_option(f->cmdline + at, opposite, &end))
			on = false;
	}
	return on;
}

/* "512", "8k" (8,000), "8K" (8,192), "25.6k"; 0: none of these. */
static uint32_t count(const char *s)
{
	static const char units[] = "kmg";
	uint64_t n = 0, scale = 1, unit = 1;
	const char *at;

	if (!s || !isdigit((unsigned char)*s))
		return 0;
	for (; isdigit((unsigned char)*s) && n <= UINT32_MAX; s++)
		n = 10 * n + (uint64_t)(*s - '0');
	for (s += *s == '.'; isdigit((unsigned char)*s) && scale < 1000000; s++, scale *= 10)
		n = 10 * n + (uint64_t)(*s - '0');
	at = *s ? strchr(units, tolower((unsigned char)*s)) : NULL;
	for (const char *u = units; at && u <= at; u++)
		unit *= islower((unsigned char)*s) ? 1000 : 1024;
	s += at != NULL;
	if (*s || n > UINT64_MAX / unit)
		return 0;
	n = n * unit / scale;
	return n <= UINT32_MAX ? n : 0;
}

uint32_t recognise_max_step_tokens(const struct proc_facts *f)
{
	return count(option(f, "--max-num-batched-tokens", NULL));
}

uint32_t recognise_max_seqs(const struct proc_facts *f)
{
	return count(option(f, "--max-num-seqs", NULL));
}

void recognise_vllm_options(const struct proc_facts *f, struct vllm_options *ret)
{
	const char *policy = option(f, "--scheduling-policy", NULL);

	*ret = (struct vllm_options){
		.uds = option(f, "--uds", NULL),
		.tls = option(f, "--ssl-keyfile", NULL) || option(f, "--ssl-certfile", NULL),
		.by_priority = policy && !strcmp(policy, "priority"),
		.no_stats = flag(f, "--disable-log-stats", "--no-disable-log-stats"),
		.headless = flag(f, "--headless", "--no-headless"),
		.config_file = option(f, "--config", NULL) != NULL,
		.api_servers = count(option(f, "--api-server-count", "-asc")),
		.engines = count(option(f, "--data-parallel-size", "-dp")),
		.engines_here = count(option(f, "--data-parallel-size-local", "-dpl")),
	};
}
