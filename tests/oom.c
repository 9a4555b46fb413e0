/* SPDX-License-Identifier: Apache-2.0 */
/* Linked with -Wl,--wrap=malloc ...: see oom.h. */
#include "oom.h"

#include <stddef.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t m);
void *__real_realloc(void *p, size_t n);
char *__real_strdup(const char *s);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t m);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);

static long left = -1;
static bool hit;

static bool fails(void)
{
	if (left < 0)
		return false;
	if (left-- > 0)
		return false;
	hit = true;
	return true;
}

void oom_after(long n)
{
	left = n;
	hit = false;
}

bool oom_hit(void)
{
	left = -1;
	return hit;
}

void *__wrap_malloc(size_t n)
{
	return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t m)
{
	return fails() ? NULL : __real_calloc(n, m);
}

void *__wrap_realloc(void *p, size_t n)
{
	return fails() ? NULL : __real_realloc(p, n);
}

char *__wrap_strdup(const char *s)
{
	return fails() ? NULL : __real_strdup(s);
}
