/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine's command line says of its limits. */
#include "engine/recognise.h"

#include "base/str.h"
#include <string.h>

/* The value of `name VALUE` or `name=VALUE` among NUL-separated arguments; NULL: not there. */
static const char *option(const struct proc_facts *f, const char *name)
{
	size_t len = strlen(name);

	for (size_t at = 0; at < f->cmdline_len; at += strlen(f->cmdline + at) + 1) {
		const char *arg = f->cmdline + at;

		if (strncmp(arg, name, len))
			continue;
		if (arg[len] == '=')
			return arg + len + 1;
		at += strlen(arg) + 1;
		return !arg[len] && at < f->cmdline_len ? f->cmdline + at : NULL;
	}
	return NULL;
}

uint32_t recognise_max_step_tokens(const struct proc_facts *f)
{
	const char *value = option(f, "--max-num-batched-tokens");
	uint64_t n;

	return value && !str_parse_u64(value, &n) && n <= UINT32_MAX ? n : 0;
}
