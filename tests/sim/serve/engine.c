/* SPDX-License-Identifier: Apache-2.0 */
/* simserve: continuous batching with chunked prefill, optionally one step ahead; writes the truth. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "../fault.h"
#include "serve.h"

struct seq {
	struct job job;
	uint32_t prefilled;	/* tokens of the prompt that were given to a step */
	uint32_t planned;	/* tokens that steps were told to make */
	uint32_t out;		/* tokens that came */
	uint32_t stop_at;	/* tokens that it will have */
	enum finish why;	/* then */
	uint32_t in_flight;	/* steps that it is part of */
	bool used, aborted;
};
struct member {
	uint32_t slot, n_tokens;
	bool prefill, out;
};
struct flight {			/* a step that was enqueued */
	struct plan plan;
	uint64_t t0_ns, launched_ns;
	uint32_t n;
	struct member members[MAX_SLOTS];
};
struct engine {
	const struct serve_opts *o;
	struct shared *shared;
	struct gpu *gpu;
	FILE *truth;
	int wake_fd;
	pthread_mutex_t lock;		/* the queues */
	pthread_cond_t more;
	struct job waiting[MAX_QUEUE];
	uint32_t n_waiting;
	uint32_t aborts[MAX_QUEUE];
	uint32_t n_aborts;
	struct output out[MAX_QUEUE];
	uint32_t n_out;
	/* the engine thread's own */
	struct seq seqs[MAX_SLOTS];
	uint32_t n_seqs;
	struct flight flights[2];
	int started;
};

/* ---- truth ---- */
static void truth_request(struct engine *e, const struct seq *s)
{
	if (e->truth)
		fprintf(e->truth, "{\"req\":%u,\"id\":\"%s\",\"t_recv_ns\":%lu,\"prompt\":%u,\"out\":%u}\n",
			s->job.req, s->job.id, s->job.recv_ns, s->job.prompt, s->out);
}

static void truth_ran(struct engine *e, const struct ran_step *r, uint32_t rank, bool copies, bool first)
{
	uint32_t n = copies ? r->n_copies : r->n;

	for (uint32_t i = 0; i < n; i++) {
		const struct ran *k = copies ? &r->copies[i] : &r->kernels[i];
		const char *name = copies ? k->name == 1 ? "HtoD" : "DtoH" : model_names[k->name];

		fprintf(e->truth, "%s[\"%s\",%u,%u,%lu,%lu]", first && !i ? "" : ",", name, rank, k->stream,
			k->t0_ns, k->t1_ns);
	}
}

static int truth_step(struct engine *e, const struct flight *f, uint64_t t1_ns)
{
	const char *graph = f->plan.bucket == 0 ? e->o->graphs ? "miss" : "none" :
			    f->plan.bucket == f->plan.n_decode ? "hit" : "padded";

	if (!e->truth)
		return 0;
	fprintf(e->truth, "{\"step\":%lu,\"t0_ns\":%lu,\"t1_ns\":%lu,\"t_launched_ns\":%lu,\"graph\":\"%s\",\"members\":[",
		f->plan.step, f->t0_ns, t1_ns, f->launched_ns, graph);
	for (uint32_t i = 0; i < f->n; i++) {
		const struct member *m = &f->members[i];

		fprintf(e->truth, "%s[\"%s\",\"%s\",%u]", i ? "," : "", e->seqs[m->slot].job.id,
			m->prefill ? "p" : "d", m->n_tokens);
	}
	for (int copies = 0; copies < 2; copies++) {
		fprintf(e->truth, copies ? "],\"copies\":[" : "],\"kernels\":[");
		for (uint32_t rank = 0; rank < e->o->tp; rank++) {
			const struct ran_step *r = ranks_ran(e->shared, rank, f->plan.step);

			if (!r)
				return -EPIPE;
			truth_ran(e, r, rank, copies, !rank);
		}
	}
	fprintf(e->truth, "]}\n");
	return 0;
}

/* ---- front side ---- */
int engine__submit(struct engine *e, const struct job *j)
{
	int err = 0;

	pthread_mutex_lock(&e->lock);
	if (e->n_waiting < MAX_QUEUE)
		e->waiting[e->n_waiting++] = *j;
	else
		err = -EAGAIN;
	pthread_cond_signal(&e->more);
	pthread_mutex_unlock(&e->lock);
	return err;
}

void engine__abort(struct engine *e, uint32_t req)
{
	pthread_mutex_lock(&e->lock);
	if (e->n_aborts < MAX_QUEUE)
		e->aborts[e->n_aborts++] = req;
	pthread_mutex_unlock(&e->lock);
}

uint32_t engine__take(struct engine *e, struct output *ret, uint32_t max)
{
	uint32_t n;

	pthread_mutex_lock(&e->lock);
	n = e->n_out < max ? e->n_out : max;
	memcpy(ret, e->out, n * sizeof(*ret));
	memmove(e->out, e->out + n, (e->n_out - n) * sizeof(*ret));
	e->n_out -= n;
	pthread_mutex_unlock(&e->lock);
	return n;
}

/* ---- scheduling ---- */
static void leave(struct engine *e, struct seq *s)
{
	truth_request(e, s);
	s->used = false;
	e->n_seqs--;
}

static void take_aborts(struct engine *e)
{
	for (uint32_t i = 0; i < e->n_aborts; i++) {
		for (uint32_t k = 0; k < e->n_waiting; k++)
			if (e->waiting[k].req == e->aborts[i]) {
				memmove(e->waiting + k, e->waiting + k + 1,
					(--e->n_waiting - k) * sizeof(*e->waiting));
				break;
			}
		for (uint32_t k = 0; k < e->o->slots; k++)
			if (e->seqs[k].used && e->seqs[k].job.req == e->aborts[i])
				e->seqs[k].aborted = true;
	}
	e->n_aborts = 0;
}

static void admit(struct engine *e)
{
	for (uint32_t i = 0; i < e->o->slots && e->n_waiting; i++) {
		struct seq *s = &e->seqs[i];
		uint64_t chance;

		if (s->used)
			continue;
		*s = (struct seq){ .job = e->waiting[0], .used = true, .why = FINISH_LENGTH };
		s->stop_at = s->job.max_out;
		chance = mix(e->o->seed ^ s->job.hash);
		if (!s->job.ignore_eos && chance % 8 == 0 && s->stop_at > 1) {
			s->stop_at = 1 + chance / 8 % (s->stop_at - 1);
			s->why = FINISH_STOP;
		}
		memmove(e->waiting, e->waiting + 1, --e->n_waiting * sizeof(*e->waiting));
		e->n_seqs++;
	}
}

/* Takes in what is new; waits for it if there is nothing else to do. */
static void take_in(struct engine *e, bool wait)
{
	pthread_mutex_lock(&e->lock);
	while (wait && !e->n_waiting && !e->n_seqs)
		pthread_cond_wait(&e->more, &e->lock);
	take_aborts(e);
	admit(e);
	pthread_mutex_unlock(&e->lock);
	for (uint32_t i = 0; i < e->o->slots; i++)
		if (e->seqs[i].used && e->seqs[i].aborted && !e->seqs[i].in_flight)
			leave(e, &e->seqs[i]);
}

/* Decodes first, prompts with what is left of the chunk. */
static void schedule(struct engine *e, struct flight *f)
{
	uint32_t left = e->o->chunk, n_max;

	f->n = 0;
	f->plan = (struct plan){ .step = f->plan.step };
	for (int prefill = 0; prefill < 2; prefill++)
		for (uint32_t i = 0; i < e->o->slots && left; i++) {
			struct seq *s = &e->seqs[i];
			struct member m = { .slot = i, .n_tokens = 1, .prefill = prefill, .out = true };

			if (!s->used || s->aborted || s->planned >= s->stop_at)
				continue;
			if ((s->prefilled < s->job.prompt) != prefill)
				continue;
			if (prefill) {
				n_max = s->job.prompt - s->prefilled;
				m.n_tokens = n_max < left ? n_max : left;
				m.out = m.n_tokens == n_max;
				s->prefilled += m.n_tokens;
			}
			left -= m.n_tokens;
			s->planned += m.out;
			s->in_flight++;
			f->members[f->n++] = m;
			f->plan.n_out += m.out;
			f->plan.n_decode += !prefill;
			f->plan.n_prefill += prefill ? m.n_tokens : 0;
		}
	if (e->o->graphs && !f->plan.n_prefill)
		f->plan.bucket = model_bucket(f->plan.n_decode);
}

static int finish_step(struct engine *e, struct flight *f)
{
	static const uint64_t one = 1;
	uint64_t t1_ns;

	if (gpu__wait(e->gpu, f->plan.step))
		return -EIO;
	t1_ns = sim_now();
	if (truth_step(e, f, t1_ns))
		return -EPIPE;
	pthread_mutex_lock(&e->lock);
	for (uint32_t i = 0; i < f->n; i++) {
		struct seq *s = &e->seqs[f->members[i].slot];
		struct output o = { .req = s->job.req, .conn = s->job.conn, .index = s->out,
				    .hash = s->job.hash };

		s->in_flight--;
		if (!f->members[i].out || s->aborted)
			continue;
		s->out++;
		o.finish = s->out == s->stop_at ? s->why : RUNNING;
		if (e->n_out < MAX_QUEUE)
			e->out[e->n_out++] = o;
	}
	pthread_mutex_unlock(&e->lock);
	for (uint32_t i = 0; i < f->n; i++) {
		struct seq *s = &e->seqs[f->members[i].slot];

		if (s->used && s->out == s->stop_at && !s->aborted)
			leave(e, s);
	}
	f->n = 0;
	return write(e->wake_fd, &one, sizeof(one)) == sizeof(one) ? 0 : -errno;
}

static int run(struct engine *e)
{
	uint64_t step = 0;
	int err = 0;

	while (!err) {
		struct flight *f = &e->flights[step % 2], *before = &e->flights[(step + 1) % 2];

		take_in(e, !before->n);
		f->t0_ns = sim_now();
		if (e->o->host_us)
			sim_sleep_until(f->t0_ns + e->o->host_us * 1000ull);
		f->plan.step = step + 1;
		schedule(e, f);
		if (f->n) {
			step++;
			if (e->o->tp > 1)
				ranks_plan(e->shared, &f->plan);
			err = err ? err : gpu__step(e->gpu, &f->plan);
			f->launched_ns = sim_now();
		}
		/* One step ahead: this one runs while the next is planned and the last is answered. */
		if (!err && before->n)
			err = finish_step(e, before);
		if (!err && f->n && !e->o->async)
			err = finish_step(e, f);
	}
	fprintf(stderr, "simserve: the engine stopped: %s\n", strerror(-err));
	_exit(1);
}

static void *engine_main(void *ctx)
{
	struct engine *e = ctx;
	int err;

	prctl(PR_SET_NAME, "simserve-engine");
	err = gpu__open(e->o, e->shared, 0, &e->gpu);
	pthread_mutex_lock(&e->lock);
	e->started = err ? err : 1;
	pthread_cond_broadcast(&e->more);
	pthread_mutex_unlock(&e->lock);
	if (!err)
		run(e);
	return NULL;
}

int engine__start(const struct serve_opts *o, struct shared *s, int wake_fd, struct engine **ret)
{
	struct engine *e = calloc(1, sizeof(*e));
	pthread_t thread;
	int err;

	if (!e)
		return -ENOMEM;
	e->o = o;
	e->shared = s;
	e->wake_fd = wake_fd;
	pthread_mutex_init(&e->lock, NULL);
	pthread_cond_init(&e->more, NULL);
	if (o->truth) {
		e->truth = fopen(o->truth, "we");
		if (!e->truth)
			return -errno;
		setvbuf(e->truth, NULL, _IOLBF, 1 << 20);
	}
	err = -pthread_create(&thread, NULL, engine_main, e);
	if (err)
		return err;
	pthread_mutex_lock(&e->lock);
	while (!e->started)
		pthread_cond_wait(&e->more, &e->lock);
	pthread_mutex_unlock(&e->lock);
	if (e->started < 0)
		return e->started;
	*ret = e;
	return 0;
}
