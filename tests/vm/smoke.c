/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tries each program of smoke.bpf.o alone: loads and attaches it, does what should make it run,
 * and prints "NAME ok" or "NAME: what failed". Fails if one failed that the agent cannot miss.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const struct probe {
	const char *name;
	bool needed;
} probes[] = {
	{ "tp", true }, { "raw_tp", true }, { "tp_btf", true }, { "uprobe", true },
	{ "uretprobe", true }, { "kprobe", true }, { "kretprobe", true }, { "fentry", true },
	{ "fexit", true }, { "perf_event", false }, { "kprobe_multi", false },
};

__attribute__((noinline)) int probed_function(int n)
{
	__asm__ volatile("" : "+r"(n));
	return n + 1;
}

static int connected[2];	/* both ends of a TCP connection over lo */

static int connect_lo(void)
{
	struct sockaddr_in addr = { .sin_family = AF_INET,
		.sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t size = sizeof(addr);
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	connected[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (struct sockaddr *)&addr, size) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&addr, &size) ||
	    connect(connected[0], (struct sockaddr *)&addr, size))
		return -1;
	connected[1] = accept(listener, NULL, NULL);
	close(listener);
	return connected[1] < 0 ? -1 : 0;
}

static void provoke(void)
{
	clock_t end;
	char c = 0;

	if (write(connected[0], &c, 1) != 1 || read(connected[1], &c, 1) != 1)
		return;
	for (int i = 0; i < 10; i++)
		probed_function(i);
	for (end = clock() + CLOCKS_PER_SEC / 10; clock() < end;)	/* for the sampling one */
		;
}

static int count(void *n_hits, void *data, size_t size)
{
	(void)data;
	(void)size;
	++*(int *)n_hits;
	return 0;
}

static struct bpf_link *attach(struct bpf_program *prog, const char *name)
{
	LIBBPF_OPTS(bpf_uprobe_opts, opts, .func_name = "probed_function",
		    .retprobe = !strcmp(name, "uretprobe"));
	struct perf_event_attr attr = { .type = PERF_TYPE_SOFTWARE, .size = sizeof(attr),
		.config = PERF_COUNT_SW_CPU_CLOCK, .sample_period = 10000000 };
	int fd;

	if (strstr(name, "uprobe") || strstr(name, "uretprobe"))
		return bpf_program__attach_uprobe_opts(prog, -1, "/proc/self/exe", 0, &opts);
	if (strcmp(name, "perf_event"))
		return bpf_program__attach(prog);
	fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
	return fd < 0 ? NULL : bpf_program__attach_perf_event(prog, fd);
}

/* Returns NULL if the program ran, else what failed. */
static const char *try_probe(const char *file, const char *name)
{
	const char *failed = "open";
	struct bpf_object *obj = bpf_object__open_file(file, NULL);
	struct bpf_program *prog = obj ? bpf_object__find_program_by_name(obj, name) : NULL;
	struct bpf_map *rodata = obj ? bpf_object__find_map_by_name(obj, ".rodata") : NULL;
	struct ring_buffer *ring = NULL;
	struct bpf_link *link = NULL;
	__u32 tgid = getpid();
	int n_hits = 0;

	if (!prog || !rodata || bpf_map__set_initial_value(rodata, &tgid, sizeof(tgid)))
		goto out;
	failed = "load";
	bpf_program__set_autoload(prog, true);
	if (bpf_object__load(obj))
		goto out;
	failed = "attach";
	link = attach(prog, name);
	if (!link)
		goto out;
	failed = "ring buffer";
	ring = ring_buffer__new(bpf_object__find_map_fd_by_name(obj, "events"), count, &n_hits,
				NULL);
	if (!ring)
		goto out;
	provoke();
	failed = ring_buffer__consume(ring) < 0 || !n_hits ? "never ran" : NULL;
out:
	ring_buffer__free(ring);
	bpf_link__destroy(link);
	bpf_object__close(obj);
	return failed;
}

static int quiet(enum libbpf_print_level level, const char *format, va_list args)
{
	(void)level;
	(void)format;
	(void)args;
	return 0;
}

int main(int argc, char **argv)
{
	int status = 0;

	if (argc != 2) {
		fprintf(stderr, "usage: smoke smoke.bpf.o\n");
		return 2;
	}
	libbpf_set_print(quiet);
	if (connect_lo()) {
		perror("smoke: no TCP over 127.0.0.1");
		return 1;
	}
	for (size_t i = 0; i < sizeof(probes) / sizeof(*probes); i++) {
		const char *failed;

		errno = 0;
		failed = try_probe(argv[1], probes[i].name);
		if (failed)
			printf("%s: %s: %s\n", probes[i].name, failed, strerror(errno));
		else
			printf("%s ok\n", probes[i].name);
		if (failed && probes[i].needed)
			status = 1;
	}
	return status;
}
