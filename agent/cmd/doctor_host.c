/* SPDX-License-Identifier: Apache-2.0 */
/* What this kernel and this user allow, as doctor shows it. */
#include "cmd/doctor.h"

#include "base/util.h"
#include "base/vec.h"
#include "source/probes.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { MAX_CHECKS = 64 };
static const char btf_path[] = "/sys/kernel/btf/vmlinux";
/* Inode numbers that the kernel gives to its first namespaces (include/linux/proc_ns.h). */
enum { FIRST_USER_NS = 0xEFFFFFFD, FIRST_PID_NS = 0xEFFFFFFC };

int check_add(struct check_list *list, const char *name, enum check_state state, const char *fmt,
	      ...)
{
	struct check *c = vec_push(list, MAX_CHECKS);
	va_list ap;

	if (!c)
		return -ENOMEM;
	c->name = name;
	c->state = state;
	va_start(ap, fmt);
	vsnprintf(c->text, sizeof(c->text), fmt, ap);
	va_end(ap);
	return 0;
}

/* First line of a small file; NULL if it cannot be read. */
static const char *read_line(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = -1;

	if (fd >= 0) {
		n = read(fd, buf, size - 1);
		close(fd);
	}
	if (n < 0)
		return NULL;
	buf[n] = 0;
	buf[strcspn(buf, "\n")] = 0;
	return buf;
}

/* ---- kernel ---- */

static int check_release(struct check_list *list)
{
	struct utsname u;

	if (uname(&u))
		return -errno;
	if (strcmp(u.machine, "x86_64"))
		return check_add(list, "release", CHECK_WARN,
				 "%s on %s: only x86_64 is supported so far", u.release, u.machine);
	return check_add(list, "release", CHECK_INFO, "%s", u.release);
}

static int check_btf(struct check_list *list)
{
	uint16_t magic = 0;
	int fd = open(btf_path, O_RDONLY | O_CLOEXEC), err = fd < 0 ? errno : 0;

	if (fd >= 0) {
		if (read(fd, &magic, sizeof(magic)) != sizeof(magic) || magic != 0xEB9F)
			err = ENODATA;
		close(fd);
	}
	if (!err)
		return check_add(list, "BTF", CHECK_OK, "%s", btf_path);
	return check_add(list, "BTF", CHECK_BAD,
		   "this kernel does not describe its types (%s: %s): needs Linux 5.15 or later "
		"built with CONFIG_DEBUG_INFO_BTF",
		btf_path, err == ENODATA ? "no BTF in it" : strerror(err));
}

static int check_tracefs(struct check_list *list)
{
	static const char *const places[] = { "/sys/kernel/tracing", "/sys/kernel/debug/tracing" };
	bool needed = false;
	char path[64];

	for (size_t i = 0; i < n_probes; i++)
		needed |= probes[i].type == PROBE_TRACEPOINT;
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		snprintf(path, sizeof(path), "%s/events", places[i]);
		if (!access(path, F_OK))
			return check_add(list, "tracefs", CHECK_OK, "%s", places[i]);
	}
	return check_add(list, "tracefs", CHECK_INFO,
		   needed ? "not mounted (or not readable): tokenlag mounts it for itself"
			  : "not mounted (or not readable): no probe needs it");
}

static int check_uprobes(struct check_list *list)
{
	char buf[16];

	if (read_line("/sys/bus/event_source/devices/uprobe/type", buf, sizeof(buf)))
		return check_add(list, "uprobes", CHECK_OK, "perf event source %s", buf);
	return check_add(list, "uprobes", CHECK_WARN,
		   "no uprobe event source (CONFIG_UPROBE_EVENTS): nothing inside an engine can be "
		"probed, no T1");
}

static int check_ring_buffer(struct check_list *list)
{
	int has = libbpf_probe_bpf_map_type(BPF_MAP_TYPE_RINGBUF, NULL);

	if (has > 0)
		return check_add(list, "ring buffer", CHECK_OK, "BPF_MAP_TYPE_RINGBUF");
	if (has == 0 && !geteuid())
		return check_add(list, "ring buffer", CHECK_BAD,
			   "this kernel has none: needs Linux 5.8 or later");
	return check_add(list, "ring buffer", CHECK_INFO, "not known: asking needs CAP_BPF");
}

static int check_stats(struct check_list *list)
{
	char buf[16];
	int fd;

	if (read_line("/proc/sys/kernel/bpf_stats_enabled", buf, sizeof(buf)) && !strcmp(buf, "1"))
		return check_add(list, "bpf_stats", CHECK_OK,
			   "on for everybody (kernel.bpf_stats_enabled)");
	fd = bpf_enable_stats(BPF_STATS_RUN_TIME);
	if (fd < 0)
		return check_add(list, "bpf_stats", CHECK_WARN,
			   "%s: what our own programs cost cannot be told", strerror(-fd));
	close(fd);
	return check_add(list, "bpf_stats", CHECK_OK, "can be turned on while capturing");
}

static int check_lockdown(struct check_list *list)
{
	char buf[64];

	if (!read_line("/sys/kernel/security/lockdown", buf, sizeof(buf)))
		return check_add(list, "lockdown", CHECK_INFO,
			   "not in this kernel, or securityfs is not mounted");
	if (strstr(buf, "[confidentiality]"))
		return check_add(list, "lockdown", CHECK_BAD,
			   "confidentiality: the kernel lets nobody read memory with BPF; boot "
			   "with lockdown=integrity or none");
	return check_add(list, "lockdown", CHECK_OK, "%s", buf);
}

static int check_sysctls(struct check_list *list)
{
	char buf[16];
	int err;

	if (!read_line("/proc/sys/kernel/unprivileged_bpf_disabled", buf, sizeof(buf)))
		snprintf(buf, sizeof(buf), "?");
	err = check_add(list, "unprivileged", CHECK_INFO,
		  "kernel.unprivileged_bpf_disabled=%s: tokenlag does not count on it", buf);
	if (err)
		return err;
	if (!read_line("/proc/sys/kernel/perf_event_paranoid", buf, sizeof(buf)))
		return check_add(list, "perf events", CHECK_WARN, "not in this kernel: no T1");
	err = check_add(list, "perf events", CHECK_INFO,
		  "kernel.perf_event_paranoid=%s: does not matter with CAP_PERFMON", buf);
	if (err)
		return err;
	if (!read_line("/proc/sys/kernel/yama/ptrace_scope", buf, sizeof(buf)))
		return check_add(list, "yama", CHECK_INFO, "not in this kernel");
	return check_add(list, "yama", CHECK_INFO,
		   "kernel.yama.ptrace_scope=%s: does not matter with CAP_SYS_PTRACE", buf);
}

static int check_memlock(struct check_list *list)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_MEMLOCK, &l))
		return -errno;
	if (l.rlim_cur == RLIM_INFINITY)
		return check_add(list, "memlock", CHECK_INFO,
			   "unlimited: not needed, BPF memory is accounted to the cgroup");
	return check_add(list, "memlock", CHECK_INFO,
		   "%llu kB: need not be raised, BPF memory is accounted to the cgroup",
		   (unsigned long long)l.rlim_cur / 1024);
}

int doctor_kernel(struct check_list *kernel)
{
	static int (*const checks[])(struct check_list *) = {
		check_release, check_btf,      check_ring_buffer, check_uprobes, check_tracefs,
		check_stats,   check_lockdown, check_sysctls,	  check_memlock,
	};
	int err = 0;

	for (size_t i = 0; i < ARRAY_SIZE(checks) && !err; i++)
		err = checks[i](kernel);
	return err;
}

/* ---- user ---- */

static const struct {
	const char *name;
	uint8_t cap;
	bool by_admin;		/* CAP_SYS_ADMIN includes it */
	const char *lost;
} caps[] = {
	{ "CAP_BPF", CAP_BPF, true, "no BPF program can be loaded" },
	{ "CAP_PERFMON", CAP_PERFMON, true, "no probe can be attached" },
	{ "CAP_SYS_PTRACE", CAP_SYS_PTRACE, false,
	  "files of other users' processes stay unknown" },
	{ "CAP_DAC_READ_SEARCH", CAP_DAC_READ_SEARCH, false,
	  "ports of other users' processes stay unknown" },
	{ "CAP_SYS_ADMIN", CAP_SYS_ADMIN, false,
	  "no bpf_stats; libraries that were deleted cannot be opened" },
};

static uint64_t effective_caps(void)
{
	unsigned long long all = 0;
	char line[256];
	FILE *f = fopen("/proc/self/status", "re");

	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f) && sscanf(line, "CapEff: %llx", &all) != 1)
		;
	fclose(f);
	return all;
}

static int check_caps(struct check_list *list)
{
	uint64_t have = effective_caps();
	bool admin = have >> CAP_SYS_ADMIN & 1;
	int err = 0;

	for (size_t i = 0; i < ARRAY_SIZE(caps) && !err; i++) {
		if (have >> caps[i].cap & 1 || (caps[i].by_admin && admin))
			err = check_add(list, caps[i].name, CHECK_OK, "%s", "");
		else
			err = check_add(list, caps[i].name, caps[i].by_admin ? CHECK_BAD : CHECK_WARN,
				  "missing: %s", caps[i].lost);
	}
	return err;
}

static bool in_first_ns(const char *ns, uint64_t first)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/self/ns/%s", ns);
	return stat(path, &st) || st.st_ino == first;
}

int doctor_user(struct check_list *user)
{
	int err = check_add(user, "uid", CHECK_INFO, "%u", geteuid());

	if (!err)
		err = check_caps(user);
	if (!err && !in_first_ns("user", FIRST_USER_NS))
		err = check_add(
			user, "user namespace", CHECK_BAD,
			"not the host's: root in here is nobody to the kernel; run on the host, or "
			"in a container without a user namespace");
	if (!err && !in_first_ns("pid", FIRST_PID_NS))
		err = check_add(
			user, "pid namespace", CHECK_BAD,
			"not the host's: the kernel's events carry other pids than are seen here; "
			"run on the host, or with its pid namespace (docker run --pid=host)");
	return err;
}

const char *doctor_blocker(const struct check_list *list)
{
	for (size_t i = 0; i < list->n; i++) {
		if (list->v[i].state == CHECK_BAD)
			return list->v[i].text;
	}
	return NULL;
}
