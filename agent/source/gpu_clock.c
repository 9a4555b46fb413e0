/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the offsets of a time namespace, if it is not ours. */
#include "source/gpu_clock.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

int64_t gpu_clock_parse(const char *offsets)
{
	const char *line = strstr(offsets, "monotonic");
	int64_t s = 0, ns = 0;

	if (!line || sscanf(line, "monotonic %" SCNd64 " %" SCNd64, &s, &ns) != 2 || s > INT32_MAX || s < -INT32_MAX)
		return 0;
	return s * 1000000000 + ns;
}

/* Of the namespace that children get, which is the process's own unless
 * it has made one for them. */
static int64_t offset_ns(const char *process)
{
	char path[64], text[256];
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%s/timens_offsets", process);
	f = fopen(path, "re");
	if (!f)
		return 0;
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = '\0';
	return gpu_clock_parse(text);
}

static bool is_ours(const char *process)
{
	struct stat own, other;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%s/ns/time", process);
	return stat("/proc/self/ns/time", &own) || stat(path, &other) || own.st_ino == other.st_ino;
}

int64_t gpu_clock_offset_ns(pid_t pid)
{
	char process[16];

	snprintf(process, sizeof(process), "%d", pid);
	return is_ours(process) ? 0 : offset_ns(process) - offset_ns("self");
}
