/* SPDX-License-Identifier: Apache-2.0 */
/* Who else is attached to a process by libtokenlag.so. */
#ifndef TL_SOURCE_GPU_OTHER_H
#define TL_SOURCE_GPU_OTHER_H

#include <stdbool.h>
#include <sys/types.h>

struct gpu_other {
	pid_t pid;		/* as we see it */
	char name[16];		/* of the process */
};
/* Who has a ring mapped that the process has mapped, too: not we, nor a child that got it by
 * fork(). A library whose agent has ended has a ring that nobody else has. false: nobody, or
 * somebody whose mappings we may not see. tick: as in inject_opts, may be NULL. */
bool gpu_other_agent(pid_t pid, void (*tick)(void *ctx), void *ctx, struct gpu_other *ret);

#endif
