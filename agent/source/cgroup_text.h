/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel writes about cgroups and their CPU quota, versions 1 and
 * 2: text to numbers. Pure. */
#ifndef TL_SOURCE_CGROUP_TEXT_H
#define TL_SOURCE_CGROUP_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cgroup_mount {
	bool v1;		/* the hierarchy that has the CPU controller is one of version 1 */
	char dir[128];		/* where it is mounted; "": nowhere */
	char root[256];		/* the cgroup that is mounted there, mostly "/" */
};
/* Of /proc/self/mountinfo. Where both are there, version 1 has the CPU
 * controller. -ENOENT: none. */
int cgroup_parse_mounts(const char *text, struct cgroup_mount *ret);

/* The cgroup of a process in that hierarchy, of /proc/PID/cgroup.
 * -ENOENT: in none; -ENAMETOOLONG. */
int cgroup_parse_path(const char *text, bool v1, char *ret, size_t size);
/* The folder of a cgroup. -ENOENT: not below what is mounted; -ENAMETOOLONG. */
int cgroup_dir(const struct cgroup_mount *m, const char *path, char *ret, size_t size);

struct cgroup_stat {
	uint64_t n_periods, n_throttled, throttled_ns;
};
/* Of cpu.stat. -EINVAL: it says nothing of throttling. */
int cgroup_parse_stat(const char *text, struct cgroup_stat *ret);
/* Of cpu.max (version 2): the quota is 0 if there is none. -EINVAL. */
int cgroup_parse_max(const char *text, uint64_t *ret_quota_us, uint64_t *ret_period_us);

#endif
