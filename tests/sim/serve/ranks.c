/* SPDX-License-Identifier: Apache-2.0 */
/* simserve: the ranks of a model, each a process with its device, and what they tell each other. */
#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../fault.h"
#include "serve.h"

/* Between the time that a rank tells and the launch of its first kernel. */
enum { SLACK_NS = 300000, TRANSFER_NS = 12000 };

/* Waits until *word >= want, counted modulo 2^32. */
static void wait_for(uint32_t *word, uint32_t want)
{
	struct timespec limit = { .tv_nsec = 100000000 };
	uint32_t now;

	while (now = __atomic_load_n(word, __ATOMIC_ACQUIRE), (int32_t)(now - want) < 0)
		syscall(SYS_futex, word, FUTEX_WAIT, now, &limit, NULL, 0);
}

static void step_up(uint32_t *word)
{
	__atomic_add_fetch(word, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void __attribute__((noreturn)) rank_run(const struct serve_opts *o, struct shared *s, uint32_t rank)
{
	char name[] = "simserve-tp0";
	struct gpu *g;
	uint32_t turn = 0;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	name[sizeof(name) - 2] += rank;
	prctl(PR_SET_NAME, name);
	if (gpu__open(o, s, rank, &g))
		_exit(1);
	for (;;) {
		struct plan p;

		wait_for(&s->turn, ++turn);
		p = s->plan;
		if (!p.step || gpu__step(g, &p))
			_exit(p.step ? 1 : 0);
		/* As in rank 0: at most one step is under way while the next is enqueued. */
		if (p.step > 1 && gpu__wait(g, p.step - 1))
			_exit(1);
	}
}

struct shared *ranks_start(const struct serve_opts *o)
{
	struct shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (s == MAP_FAILED)
		return NULL;
	for (uint32_t rank = 1; rank < o->tp; rank++) {
		pid_t pid = fork();

		if (pid < 0)
			return NULL;
		if (!pid)
			rank_run(o, s, rank);
	}
	return s;
}

void ranks_plan(struct shared *s, const struct plan *p)
{
	s->plan = *p;
	step_up(&s->turn);
}

void ranks_agree(struct shared *s, const struct serve_opts *o, uint32_t rank, const struct plan *p,
		 uint64_t ready_ns, uint64_t *ret_not_before)
{
	static struct kernel kernels[MAX_RANKS][MAX_KERNELS];	/* each process has one thread here */
	uint64_t *start = s->start_ns[p->step % 2], at[MAX_RANKS];
	uint32_t n = 0;

	if (o->tp == 1) {
		n = model_forward(o, p, rank, kernels[0]);
		memset(ret_not_before, 0, n * sizeof(*ret_not_before));
		return;
	}
	__atomic_store_n(&start[rank], ready_ns + SLACK_NS, __ATOMIC_RELEASE);
	step_up(&s->posted);
	wait_for(&s->posted, (uint32_t)p->step * o->tp);
	for (uint32_t r = 0; r < o->tp; r++) {
		at[r] = __atomic_load_n(&start[r], __ATOMIC_ACQUIRE);
		n = model_forward(o, p, r, kernels[r]);
	}
	/* A collective ends when the last rank has come to it and the data went round. */
	ret_not_before[0] = at[rank];
	for (uint32_t i = 1; i < n; i++) {
		uint64_t last = 0;

		for (uint32_t r = 0; r < o->tp; r++) {
			at[r] += kernels[r][i].dur_ns;
			last = at[r] > last ? at[r] : last;
		}
		ret_not_before[i] = kernels[rank][i].collective ? last + TRANSFER_NS : 0;
		for (uint32_t r = 0; r < o->tp && kernels[rank][i].collective; r++)
			at[r] = last + TRANSFER_NS;
	}
}

const struct ran_step *ranks_ran(struct shared *s, uint32_t rank, uint64_t step)
{
	struct ran_step *r = &s->ran[rank][step % MAX_FLIGHT];
	uint64_t give_up = sim_now() + 10000000000ull;

	while (__atomic_load_n(&r->step, __ATOMIC_ACQUIRE) != step) {
		if (sim_now() > give_up)
			return NULL;
		sim_sleep_until(sim_now() + 100000);
	}
	return r;
}
