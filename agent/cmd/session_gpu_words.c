/* SPDX-License-Identifier: Apache-2.0 */
/* What stands against GPU records, and what can be done about it: the same words
 * live and in the recording. */
#include "base/util.h"
#include "cmd/session_gpu_priv.h"

#include "source/gpu_other.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char restart[] = "restart the server to have its records again";
static const char other_agent[] = "its recording has them; end it to have them here";
static const char injection[] =
	"no ptrace is needed in a server that is started with CUDA_INJECTION64_PATH=/path/to/libtokenlag.so";

static void append(char *why, size_t size, const char *advice)
{
	size_t n = strlen(why);

	if (n + strlen(advice) + 2 < size)
		snprintf(why + n, size - n, "; %s", advice);
}

void session_gpu_advise(char *why, size_t size)
{
	static const struct { const char *words, *advice; } rows[] = {
		{ "is already attached", other_agent },
		{ "CUPTI is held by another tool", "end that tool (a profiler, DCGM's profiling metrics) and record again" },
		{ "did not return", restart },
		{ "fatal error", restart },
		{ "impossible times", restart },
		{ "collection is dead", restart },
		{ "waiting for cuptiSubscribe", "record for longer" },
		{ "older", "a libcupti of CUDA 12.6 or later beside the server's, or --gpu launches" },
		{ "too old", "a libcupti of CUDA 12.6 or later beside the server's, or --gpu launches" },
		{ "no CUPTI", "install libcupti of the server's CUDA where its loader finds it" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (strstr(why, rows[i].words)) {
			append(why, size, rows[i].advice);
			return;
		}
}

void session_gpu_name_holder(uint32_t tgid, char holder[32], char *why, size_t size)
{
	static const char held[] = "CUPTI is held by another tool: ";
	struct gpu_other other;

	/* Another tool may hold it, and another agent be there. */
	if (strncmp(why, held, sizeof(held) - 1) || !strstr(why + sizeof(held) - 1, "tokenlag") ||
	    !gpu_other_agent(tgid, NULL, NULL, &other))
		return;
	snprintf(holder, 32, "%s (pid %d)", other.name, other.pid);
	snprintf(why, size, "%s is already attached to process %u, by another libtokenlag.so than ours",
		 holder, tgid);
}

void session_gpu_advise_entry(int err, char *why, size_t size)
{
	bool again = strstr(why, "try again"), other = strstr(why, "is already attached");

	if (other)
		append(why, size, other_agent);
	else if (!again &&
		 (err == -EPERM || err == -EACCES || err == -EBUSY || err == -EAGAIN ||
		  err == -ENOTSUP || err == -ETIMEDOUT))
		append(why, size, injection);
}
