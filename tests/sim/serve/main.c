/* SPDX-License-Identifier: Apache-2.0 */
/* simserve: options, and the order in which its parts start. */
#include <argp.h>
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "serve.h"

enum { OPT_TP = 256, OPT_GRAPHS, OPT_ASYNC, OPT_SLOTS, OPT_CHUNK, OPT_FAULT, OPT_CUPTI, OPT_LAYERS,
       OPT_STEP_US, OPT_TOKEN_NS, OPT_HOST_US };

static const struct argp_option options[] = {
	{ "port", 'p', "PORT", 0, "on 127.0.0.1 (8000); 0 lets the kernel choose", 0 },
	{ "truth", 't', "FILE", 0, "what happened, as JSON lines", 0 },
	{ "seed", 's', "N", 0, "the same gives the same kernel times (1)", 0 },
	{ "tp", OPT_TP, "N", 0, "ranks, each a process with its own device (1)", 0 },
	{ "graphs", OPT_GRAPHS, "on|off", 0, "decode steps as one graph launch (on)", 0 },
	{ "async", OPT_ASYNC, "on|off", 0, "enqueue a step while the last one runs (off)", 0 },
	{ "slots", OPT_SLOTS, "N", 0, "sequences at once (32)", 0 },
	{ "chunk", OPT_CHUNK, "TOKENS", 0, "tokens of a step (256)", 0 },
	{ "layers", OPT_LAYERS, "N", 0, "of the model: 8 kernels each, 10 with ranks (8)", 0 },
	{ "step-us", OPT_STEP_US, "N", 0, "time on the device of a decode step (6000)", 0 },
	{ "token-ns", OPT_TOKEN_NS, "N", 0, "more for each token of a prompt (20000)", 0 },
	{ "host-us", OPT_HOST_US, "N", 0, "of the engine before each step (200)", 0 },
	{ "cupti", OPT_CUPTI, "11|12|13|none", 0, "loaded at the start, as PyTorch does it (13)", 0 },
	{ "fault", OPT_FAULT, "NAME[=VALUE]", 0, "of the simulated libraries: tests/sim/fault.h", 0 },
	{ 0 },
};

static uint32_t number(const char *arg, uint32_t min, uint32_t max, struct argp_state *state)
{
	char *end;
	unsigned long v = strtoul(arg, &end, 10);

	if (*end || v < min || v > max)
		argp_error(state, "'%s' is not a number from %u to %u", arg, min, max);
	return v;
}

static bool on_off(const char *arg, struct argp_state *state)
{
	if (strcmp(arg, "on") && strcmp(arg, "off"))
		argp_error(state, "'%s' is neither on nor off", arg);
	return !strcmp(arg, "on");
}

static const char *cupti(const char *arg, struct argp_state *state)
{
	if (!strcmp(arg, "none"))
		return NULL;
	if (strcmp(arg, "11") && strcmp(arg, "12") && strcmp(arg, "13"))
		argp_error(state, "there is no simulated CUPTI '%s'", arg);
	return !strcmp(arg, "11") ? "libcupti.so.11.8" : !strcmp(arg, "12") ? "libcupti.so.12" :
		"libcupti.so.13";
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct serve_opts *o = state->input;

	switch (key) {
	case 'p': o->port = number(arg, 0, 65535, state); break;
	case 't': o->truth = arg; break;
	case 's': o->seed = strtoull(arg, NULL, 0); break;
	case OPT_TP: o->tp = number(arg, 1, MAX_RANKS, state); break;
	case OPT_GRAPHS: o->graphs = on_off(arg, state); break;
	case OPT_ASYNC: o->async = on_off(arg, state); break;
	case OPT_SLOTS: o->slots = number(arg, 1, MAX_SLOTS, state); break;
	case OPT_CHUNK: o->chunk = number(arg, 1, 1 << 20, state); break;
	case OPT_LAYERS: o->layers = number(arg, 1, MAX_LAYERS, state); break;
	case OPT_STEP_US: o->step_us = number(arg, 1, 10000000, state); break;
	case OPT_TOKEN_NS: o->token_ns = number(arg, 0, 100000000, state); break;
	case OPT_HOST_US: o->host_us = number(arg, 0, 10000000, state); break;
	case OPT_CUPTI: o->cupti = cupti(arg, state); break;
	case OPT_FAULT: setenv("TL_SIM_FAULT", arg, 1); break;
	case ARGP_KEY_ARG: argp_usage(state); break;
	default: return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static int listen_on(uint16_t *port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(*port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (void *)&a, len) || listen(fd, 512) || getsockname(fd, (void *)&a, &len))
		return -errno;
	*port = ntohs(a.sin_port);
	return fd;
}

static char **own_args;

/* SIGHUP: the same program again, in the same process. */
static void start_anew(int signal)
{
	(void)signal;
	execv("/proc/self/exe", own_args);
	_exit(1);
}

int main(int argc, char **argv)
{
	static const struct argp argp = { options, parse, NULL,
		"A streaming LLM server without a model or a GPU, for tests.", NULL, NULL, NULL };
	struct serve_opts o = { .port = 8000, .cupti = "libcupti.so.13", .seed = 1, .tp = 1, .slots = 32,
				.chunk = 256, .layers = 8, .step_us = 6000, .token_ns = 20000,
				.host_us = 200, .graphs = true };
	const struct sigaction on_hup = { .sa_handler = start_anew, .sa_flags = SA_NODEFER };
	struct engine *e;
	struct shared *s;
	int fd, wake, err;

	own_args = argv;
	sigaction(SIGHUP, &on_hup, NULL);
	argp_parse(&argp, argc, argv, 0, NULL, &o);
	fd = listen_on(&o.port);		/* clients wait in its queue until the engine is there */
	wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	s = fd < 0 ? NULL : ranks_start(&o);	/* before there are threads and CUDA */
	if (fd < 0 || wake < 0 || !s) {
		fprintf(stderr, "simserve: port %u: %s\n", o.port, strerror(fd < 0 ? -fd : errno));
		return 1;
	}
	err = engine__start(&o, s, wake, &e);
	if (!err) {
		printf("ready pid=%d port=%u version=%s\n", getpid(), o.port, TL_VERSION);
		fflush(stdout);
		err = front_run(e, fd, wake);
	}
	fprintf(stderr, "simserve: %s\n", strerror(-err));
	return 1;
}
