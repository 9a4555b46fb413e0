/* SPDX-License-Identifier: Apache-2.0 */
/* Names of kernels as people know them: without scope, template and arguments. */
#include "model/gpu.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- the Itanium C++ ABI, as far as a function's name needs it ---- */

/* A source name, <length><text>, at *s. Returns its length and moves *s behind it, 0: there is none. */
static size_t source_name(const char **s, const char **ret)
{
	size_t n = 0;
	const char *p = *s;

	while (isdigit((unsigned char)*p) && n < 10000)
		n = n * 10 + (size_t)(*p++ - '0');
	if (!n || n > strlen(p))
		return 0;
	*ret = p;
	*s = p + n;
	return n;
}

static const char *skip_group(const char *s, int depth);

/* S_, S0_, St, Sa ... */
static const char *skip_substitution(const char *s)
{
	s++;
	if (islower((unsigned char)*s))
		return s + 1;
	while (isdigit((unsigned char)*s) || isupper((unsigned char)*s))
		s++;
	return *s == '_' ? s + 1 : s;
}

/* L <type> <value> E: the value's digits are no name's length. NULL: cut, or not understood. */
static const char *skip_literal(const char *s, int depth)
{
	const char *name;

	s++;
	if (*s == 'N')
		s = skip_group(s, depth);
	else if (isdigit((unsigned char)*s))
		s = source_name(&s, &name) ? s : NULL;
	else if (*s == '_')
		return NULL;
	s = s ? strchr(s, 'E') : NULL;
	return s ? s + 1 : NULL;
}

/* Behind the group that s begins: I, N, X, J or F ... E. NULL: cut, or not understood. */
static const char *skip_group(const char *s, int depth)
{
	const char *name;

	if (depth > 32)
		return NULL;
	for (s++; s && *s && *s != 'E';) {
		if (isdigit((unsigned char)*s))
			s = source_name(&s, &name) ? s : NULL;
		else if (*s == 'L')
			s = skip_literal(s, depth + 1);
		else if (*s == 'S')
			s = skip_substitution(s);
		else if (strchr("INXJF", *s))
			s = skip_group(s, depth + 1);
		else if (*s == 'T' && (s[1] == '_' || isdigit((unsigned char)s[1])))
			s = strchr(s, '_') ? strchr(s, '_') + 1 : NULL;
		else
			s++;
	}
	return s && *s ? s + 1 : NULL;
}

/* The last source name of a nested one, N <names and templates> E, or of a plain one. */
static size_t last_name(const char *s, const char **ret)
{
	bool nested = *s == 'N';
	size_t n = 0, got;

	s += nested;
	while (*s == 'K' || *s == 'V' || *s == 'L')
		s++;
	while (*s && *s != 'E') {
		const char *name;

		if (isdigit((unsigned char)*s)) {
			got = source_name(&s, &name);
			if (!got)
				break;
			/* "_GLOBAL__N_..." is no name that a person gave */
			if (strncmp(name, "_GLOBAL__N", got < 10 ? got : 10)) {
				*ret = name;
				n = got;
			}
			if (!nested)
				break;
		} else if (*s == 'I') {
			s = skip_group(s, 0);
			if (!s)
				break;
		} else if (*s == 'S') {
			s = skip_substitution(s);
		} else {
			break;
		}
	}
	return n;
}

/* void scope::name<...>(...): the last word in front of the first bracket outside of templates. */
static size_t plain_name(const char *s, const char **ret)
{
	const char *begin = s, *end = NULL, *p;
	int depth = 0;

	for (p = s; *p && !(depth == 0 && *p == '(' && p > begin); p++) {
		if (*p == '<' && depth++ == 0)
			end = p;
		else if (*p == '>' && depth > 0)
			depth--;
		else if (depth == 0 && (*p == ' ' || (*p == ':' && p[1] == ':'))) {
			begin = p + (*p == ':' ? 2 : 1);
			end = NULL;
		}
	}
	end = end && end > begin ? end : p;
	*ret = begin;
	return (size_t)(end - begin);
}

void gpu_short_name(const char *mangled, char *ret, size_t size)
{
	const char *name = mangled;
	size_t n;

	if (!strncmp(mangled, "_Z", 2))
		n = last_name(mangled + 2, &name);
	else
		n = plain_name(mangled, &name);
	if (!n) {
		name = mangled;
		n = strlen(mangled);
	}
	n = n < size ? n : size - 1;
	memcpy(ret, name, n);
	ret[n] = '\0';
}

/* ---- what a kernel is for ---- */

static bool has_word(const char *name, const char *const *words)
{
	for (; *words; words++)
		if (strcasestr(name, *words))
			return true;
	return false;
}

bool gpu_is_collective(const char *short_name)
{
	static const char *const words[] = {
		"nccl", "rccl", "allreduce", "all_reduce", "allgather", "all_gather", "reducescatter",
		"reduce_scatter", "alltoall", "all_to_all", "sendrecv", "one_shot", "two_shot",
		"oneshot", "twoshot", "multimem", "cross_device_reduce", "nvshmem", "mscclpp", "deep_ep", "userbuffers", NULL
	};

	return has_word(short_name, words);
}

bool gpu_is_sampling(const char *short_name)
{
	static const char *const words[] = {
		"sampl", "argmax", "top_k_top_p", "topktopp", "top_p", "topp", "min_p", "multinomial",
		"penalt", "logits_proc", "repetition", "gumbel", "exponential", "rejection",
		"speculative", NULL
	};

	return has_word(short_name, words);
}
