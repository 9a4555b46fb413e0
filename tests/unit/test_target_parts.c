/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of libtokenlag.so by themselves: clocks, names, the pool of buffers, the ring's writing
 * end, the watchdog. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "target/buffers.c"
#include "target/clocks.c"
#include "target/guard.c"
#include "target/names.c"
#include "target/ring.c"

/* ---- clocks ---- */

enum { REAL0 = 1000000000 };	/* CLOCK_REALTIME when CLOCK_MONOTONIC was 0, here */

struct world {			/* a clock faster by ppm, and set by step_ns at step_at_ns */
	const char *name;
	int64_t ppm, step_ns;
	uint64_t step_at_ns;
};

static uint64_t real_of(const struct world *w, uint64_t mono_ns)
{
	uint64_t t = REAL0 + mono_ns + (int64_t)mono_ns * w->ppm / 1000000;

	return w->step_ns && mono_ns >= w->step_at_ns ? t + w->step_ns : t;
}

static const struct world worlds[] = {
	{ "steady", 0, 0, 0 },
	{ "50 ppm fast", 50, 0, 0 },
	{ "50 ppm slow", -50, 0, 0 },
	{ "400 ppm fast", 400, 0, 0 },
	{ "set forward by 5 ms", 50, 5000000, 1001000000 },
	{ "set back by 5 ms", 50, -5000000, 1001000000 },
	{ "set back by half a second", -50, -500000000, 1001000000 },
	{ "set forward by 100 us", 0, 100000, 1001000000 },
};

/* Pairs every 2 ms for 2 s, as in a window; then times all over it are asked back. */
static void test_clocks__cases(void **state)
{
	static struct clocks c;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(worlds); i++) {
		const struct world *w = &worlds[i];
		uint32_t n_steps = 0, n_guesses = 0;

		clocks__reset(&c);
		for (uint64_t t = 0; t <= 2000000000; t += 2000000) {
			struct clock_pair p = { t, real_of(w, t), 100 };

			n_steps += clocks__add(&c, &p);
		}
		assert_int_equal(n_steps, w->step_ns != 0);
		for (uint64_t t = 1000; t < 2000000000; t += 99991) {
			bool guess;
			uint64_t got = clocks__map(&c, real_of(w, t), UINT64_MAX, &guess);
			uint64_t off = got < t ? t - got : got - t;

			n_guesses += guess;
			if (off > 2500 && !guess)
				fail_msg("%s: %ju is taken for %ju", w->name, (uintmax_t)t,
					 (uintmax_t)got);
		}
		/* Only what is near the step can be meant twice. */
		assert_true(n_guesses * 99991ull <=
			    (w->step_ns < 0 ? 2 * (uint64_t)-w->step_ns : 0) +
				    (w->step_ns ? 3 * 2000000 : 0));
	}
}

/* Set back between two pairs: what came behind that, and before the next pair, is of the time after it. */
static void test_clocks__between_pairs(void **state)
{
	static const struct world w = { "", 0, -50000000, 1000500000 };
	static struct clocks c;

	(void)state;
	clocks__reset(&c);
	for (uint64_t t = 900000000; t <= 1100000000; t += 2000000) {
		struct clock_pair p = { t, real_of(&w, t), 100 };

		clocks__add(&c, &p);
	}
	for (uint64_t t = 1000600000; t < 1003000000; t += 100000) {
		bool guess;

		assert_int_equal(clocks__map(&c, real_of(&w, t), UINT64_MAX, &guess), t);
		assert_true(guess);
	}
}

/* What ran in the tenth of a second before now, asked every 10 ms: a reading that is still to come is none. */
static void test_clocks__of_what_is_over(void **state)
{
	static const struct world back[] = {
		{ "by 50 ms", 400, -50000000, 1001000000 }, { "by a second", 50, -1000000000, 1001000000 },
	};
	static struct clocks c;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(back); i++) {
		uint32_t n_guesses = 0;

		clocks__reset(&c);
		for (uint64_t now = 900000000; now <= 1400000000; now += 2000000) {
			struct clock_pair p = { now, real_of(&back[i], now), 100 };

			clocks__add(&c, &p);
			for (uint64_t t = now - 99000000; now % 10000000 == 0 && now >= 1000000000 && t < now; t += 999983) {
				bool guess;
				uint64_t got = clocks__map(&c, real_of(&back[i], t), now, &guess);
				uint64_t off = got < t ? t - got : got - t;

				n_guesses += guess;
				if (got > now + 5000 || (off > 5000 && !guess))
					fail_msg("%s, at %ju: %ju is taken for %ju", back[i].name, (uintmax_t)now, (uintmax_t)t,
						 (uintmax_t)got);
			}
		}
		assert_in_range(n_guesses, 0, 1000); /* of 4,000 */
	}
}

/* chronyd lets a clock run faster or slower by up to 8 % until it is right. */
static void test_clocks__slewed(void **state)
{
	static struct clocks c;

	(void)state;
	for (int sign = -1; sign <= 1; sign += 2) {
		static const uint64_t from = 501300000, to = 1500700000;
		uint32_t n_steps = 0, n_guesses = 0;

#define REAL(t) (REAL0 + (t) + sign * (int64_t)((t) < from ? 0 : ((t) < to ? (t) - from : to - from) / 12))
		clocks__reset(&c);
		for (uint64_t t = 0; t <= 2000000000; t += 2000000) {
			struct clock_pair p = { t, REAL(t), 100 };

			n_steps += clocks__add(&c, &p);
		}
		assert_in_range(n_steps, 2, 6);
		for (uint64_t t = 1000; t < 2000000000; t += 99991) {
			bool guess;
			uint64_t got = clocks__map(&c, REAL(t), UINT64_MAX, &guess);

			n_guesses += guess;
			if (!guess && (got > t + 200000 || got + 200000 < t))
				fail_msg("%ju is taken for %ju", (uintmax_t)t, (uintmax_t)got);
			if ((t < from || (t > from + 6000000 && t + 2000000 < to) || t > to + 6000000) &&
			    (got > t + 2500 || got + 2500 < t))
				fail_msg("%ju is taken for %ju", (uintmax_t)t, (uintmax_t)got);
		}
		assert_in_range(n_guesses, 0, 200);	/* of 20,000 */
#undef REAL
	}
}

static void test_clocks__keeps_what_is_recent(void **state)
{
	static const struct world w = { "", 50, 0, 0 };
	static struct clocks c;
	uint64_t t = 0, got;
	bool guess;

	(void)state;
	clocks__reset(&c);
	assert_int_equal(clocks__map(&c, 5, UINT64_MAX, &guess), 0);
	for (int i = 0; i < 5 * MAX_PAIRS; i++, t += 2000000) {
		struct clock_pair p = { t, real_of(&w, t), 100 };

		clocks__add(&c, &p);
	}
	got = clocks__map(&c, real_of(&w, t - 1234567), UINT64_MAX, &guess);
	assert_in_range(got, t - 1234567 - 2500, t - 1234567 + 2500);
	/* Older than all that is kept: from the oldest on, off by the drift since then. */
	got = clocks__map(&c, real_of(&w, 1000000), UINT64_MAX, &guess);
	assert_in_range(got, 0, 1000000 + 8192 * 2000000ull / 1000000 * 50);
	clocks__map(&c, 0, UINT64_MAX, &guess);
	clocks__map(&c, UINT64_MAX, UINT64_MAX, &guess);
}

static void test_clocks__many_steps(void **state)
{
	static struct clocks c;
	uint64_t real = REAL0;
	bool guess;

	(void)state;
	clocks__reset(&c);
	for (uint64_t i = 0; i < 100; i++) {
		struct clock_pair p = { i * 2000000, real, 100 };

		clocks__add(&c, &p);
		real += i % 3 ? 2000000 : 12000000;
	}
	assert_true(c.n_epochs > MAX_EPOCHS);
	for (uint64_t r = 0; r < 2 * real; r += 1000003)
		clocks__map(&c, r, UINT64_MAX, &guess);
}

/* ---- names ---- */

static void test_names__once_each(void **state)
{
	static struct names n;
	char a[] = "kernel_a", b[] = "kernel_b", again[] = "kernel_a";
	bool new;

	(void)state;
	names__reset(&n);
	assert_int_equal(names__id(&n, a, &new), 1);
	assert_true(new);
	assert_int_equal(names__id(&n, b, &new), 2);
	assert_true(new);
	assert_int_equal(names__id(&n, again, &new), 1);
	assert_false(new);
	memcpy(a, b, sizeof(a));	/* another module's name, where one was that is unloaded */
	names__new_turn(&n);
	assert_int_equal(names__id(&n, a, &new), 2);
	assert_false(new);
	memcpy(a, "kernel_c", sizeof(a));
	names__new_turn(&n);
	assert_int_equal(names__id(&n, a, &new), 3);
	assert_true(new);
	names__forget_last(&n);
	assert_int_equal(names__id(&n, a, &new), 3);
	assert_true(new);
	names__reset(&n);
	assert_int_equal(names__id(&n, b, &new), 1);
	assert_true(new);
}

static void test_names__long_and_many(void **state)
{
	static struct names n;
	static char text[MAX_NAMES + 1][160];
	char longer[400];
	bool new;

	(void)state;
	names__reset(&n);
	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = 0;
	assert_int_equal(names__id(&n, longer, &new), 1);
	assert_int_equal(strlen(n.text[1]), NAME_BYTES - 1);
	longer[300] = 'y';		/* differs behind what is kept */
	assert_int_equal(names__id(&n, longer, &new), 1);
	for (int i = 0; i < MAX_NAMES; i++) {
		snprintf(text[i], sizeof(text[i]), "_ZN2at6native29vectorized_elementwise_kernel%d",
			 i);
		assert_int_equal(names__id(&n, text[i], &new), i < MAX_NAMES - 1 ? i + 2 : 0);
	}
	for (int i = 0; i < MAX_NAMES - 1; i++) {
		assert_int_equal(names__id(&n, text[i], &new), i + 2);
		assert_false(new);
	}
	names__reset(&n);
}

/* ---- buffers ---- */

static void test_buffers__run_out_and_come_back(void **state)
{
	struct buffers b = { 0 };
	uint8_t *taken[MAX_BUFFERS], *got;
	size_t valid;

	(void)state;
	assert_int_equal(buffers__open(&b), 0);
	for (int i = 0; i < MAX_BUFFERS; i++) {
		taken[i] = buffers__take(&b);
		assert_true(taken[i] != b.discard);
		memset(taken[i], i, BUFFER_BYTES);
	}
	assert_ptr_equal(buffers__take(&b), b.discard);
	buffers__fill(&b, b.discard, 1234);
	assert_int_equal(b.discarded_bytes, 1234);
	assert_int_equal(b.n_asked, MAX_BUFFERS + 1);
	assert_null(buffers__next(&b, &valid));
	assert_int_equal(buffers__open(&b), 0);	/* CUPTI's stay as they are */
	assert_int_equal(taken[9][17], 9);
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < MAX_BUFFERS; i++) {
			buffers__fill(&b, taken[i], i + 1);
			got = buffers__next(&b, &valid);
			assert_ptr_equal(got, taken[i]);
			assert_int_equal(valid, i + 1);
			buffers__free(&b, got);
			taken[i] = buffers__take(&b);
			assert_true(taken[i] != b.discard);
		}
	buffers__fill(&b, (uint8_t *)&b, 8);		/* another client's */
	buffers__fill(&b, taken[0], SIZE_MAX / 512);	/* more than it has room for */
	assert_ptr_equal(buffers__next(&b, &valid), taken[0]);
	assert_true(valid <= BUFFER_BYTES);
	buffers__free(&b, taken[0]);
	for (int i = 1; i < MAX_BUFFERS; i++)
		buffers__free(&b, taken[i]);
	buffers__close(&b);
	taken[3][5] = 1;		/* somebody is late */
	assert_int_equal(buffers__open(&b), 0);
	assert_int_equal(b.free, ~0ull);
	munmap(b.memory, ALL_BYTES);
}

/* ---- the ring ---- */

static int ring_fd(size_t bytes, size_t offset, uint64_t magic, uint32_t data_bytes)
{
	struct tl_ring head = { .magic = magic, .data_offset = offset, .data_bytes = data_bytes };
	int fd = memfd_create("ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, bytes), 0);
	assert_true(bytes < sizeof(head) || pwrite(fd, &head, sizeof(head), 0) == sizeof(head));
	return fd;
}

static const struct ring_case {
	const char *name;
	size_t bytes, offset;
	uint64_t magic;
	uint32_t data_bytes;
	int want;
} ring_cases[] = {
	{ "fine",                 8192,      4096, TL_RING_MAGIC,     4096,       0 },
	{ "empty file",           0,         4096, TL_RING_MAGIC,     4096,       -EINVAL },
	{ "another file",         8192,      4096, TL_RING_MAGIC + 1, 4096,       -EINVAL },
	{ "no power of two",      16384,     4096, TL_RING_MAGIC,     4096 * 3,   -EINVAL },
	{ "more than the file",   8192,      4096, TL_RING_MAGIC,     8192,       -EINVAL },
	{ "far more",             8192,      4096, TL_RING_MAGIC,     1u << 31,   -EINVAL },
	{ "data over the head",   8192,      64,   TL_RING_MAGIC,     4096,       -EINVAL },
	{ "not aligned",          16384,     4097, TL_RING_MAGIC,     4096,       -EINVAL },
	{ "no data",              8192,      4096, TL_RING_MAGIC,     0,          -EINVAL },
};

static void test_ring__map_cases(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(ring_cases); i++) {
		const struct ring_case *c = &ring_cases[i];
		int fd = ring_fd(c->bytes, c->offset, c->magic, c->data_bytes), err;
		struct ring r = { 0 };

		err = ring__map(&r, fd);
		if (err != c->want)
			fail_msg("%s: %d", c->name, err);
		assert_int_equal(!!r.shared, !err);
		if (!err)	/* a file that shrinks would kill the target */
			assert_int_equal(ftruncate(fd, 4096), -1);
		ring__unmap(&r);
		ring__unmap(&r);
		close(fd);
	}
	assert_int_equal(ring__map(&(struct ring){ 0 }, -1), -EBADF);
}

static void test_ring__has_one_owner(void **state)
{
	int fd = ring_fd(8192, 4096, TL_RING_MAGIC, 4096), other = 1;
	struct ring r = { 0 }, again = { 0 };

	(void)state;
	assert_int_equal(ring__map(&r, fd), 0);
	assert_int_equal(r.shared->owner, getpid());
	assert_int_equal(ring__map(&again, fd), 0);	/* the same process: its own affair */
	munmap(again.shared, again.map_bytes);
	r.shared->owner = getpid() + 1;
	assert_int_equal(ring__map(&again, fd), -EBUSY);
	ring__unmap(&r);			/* not ours any more: left as it is */
	assert_int_equal(pread(fd, &other, sizeof(other), offsetof(struct tl_ring, owner)), 4);
	assert_int_equal(other, getpid() + 1);
	close(fd);
}

/* Takes all that is there, as the agent does; returns the number of events, and adds up what they
 * hold. */
static uint64_t take(struct ring *r, uint64_t *sum)
{
	uint64_t n = 0;

	for (;;) {
		char *at = r->data + (r->shared->tail & (r->bytes - 1));
		uint64_t word = __atomic_load_n((uint64_t *)(void *)at, __ATOMIC_ACQUIRE);
		uint16_t size = word;

		if (!size)
			return n;
		assert_true(size % 8 == 0 && at + size <= r->data + r->bytes);
		if ((uint16_t)(word >> 16) != TL_NONE) {
			struct tl_hdr *h = (void *)at;

			assert_int_equal(h->size, size);
			for (const char *p = at + sizeof(*h); p < at + size; p++)
				assert_int_equal((unsigned char)*p, (unsigned char)h->ts_ns);
			*sum += h->ts_ns;
			n++;
		}
		memset(at, 0, size);
		__atomic_store_n(&r->shared->tail, r->shared->tail + size, __ATOMIC_RELEASE);
	}
}

static bool put(struct ring *r, uint16_t size, uint64_t value)
{
	char event[TL_EVENT_MAX];
	struct tl_hdr h = { size, TL_GPU_SPAN, 0, 1, 2, value };

	memcpy(event, &h, sizeof(h));
	memset(event + sizeof(h), (int)value, size - sizeof(h));
	return ring__put(r, event);
}

static void test_ring__wraps_and_fills(void **state)
{
	int fd = ring_fd(8192, 4096, TL_RING_MAGIC, 4096);
	uint64_t put_n = 0, put_sum = 0, got_n = 0, got_sum = 0;
	struct ring r;

	(void)state;
	assert_int_equal(ring__map(&r, fd), 0);
	for (uint64_t i = 0; i < 5000; i++) {
		bool ok = put(&r, 24 + i * 7 % 40 * 8, i);

		put_n += ok;
		put_sum += ok ? i : 0;
		if (!ok || i % 41 == 0)
			got_n += take(&r, &got_sum);
	}
	got_n += take(&r, &got_sum);
	assert_true(put_n > 4000 && r.shared->n_dropped > 0);
	assert_int_equal(put_n + r.shared->n_dropped, 5000);
	assert_int_equal(got_n, put_n);
	assert_int_equal(got_sum, put_sum);
	assert_int_equal(r.shared->head, r.shared->tail);
	r.shared->tail = r.shared->head + 8;	/* an agent gone mad */
	assert_false(put(&r, 64, 1));
	r.shared->tail = 1ull << 63;
	assert_false(put(&r, 64, 1));
	ring__unmap(&r);
	close(fd);
}

/* Several at once: those that there is room for, in one piece or around the end. */
static void test_ring__many_at_once(void **state)
{
	int fd = ring_fd(8192, 4096, TL_RING_MAGIC, 4096);
	uint64_t put_n = 0, want_sum = 0, got_n = 0, got_sum = 0, asked = 0;
	struct tl_gpu_span spans[40];
	struct ring r;

	(void)state;
	assert_int_equal(ring__map(&r, fd), 0);
	for (uint64_t i = 0; i < 2000; i++) {
		uint32_t n = 1 + i * 7 % ARRAY_SIZE(spans), done;

		for (uint32_t k = 0; k < n; k++) {
			memset(&spans[k], (int)(i + k), sizeof(spans[k]));
			spans[k].hdr = (struct tl_hdr){ sizeof(spans[k]), TL_GPU_SPAN, 0, 1, 2, i + k };
		}
		done = ring__put_many(&r, spans, n);
		assert_true(done <= n);
		for (uint32_t k = 0; k < done; k++)
			want_sum += i + k;
		asked += n;
		put_n += done;
		if (done < n || i % 5 == 0)
			got_n += take(&r, &got_sum);
	}
	got_n += take(&r, &got_sum);
	assert_int_equal(put_n + r.shared->n_dropped, asked);
	assert_true(r.shared->n_dropped > 0 && put_n > r.shared->n_dropped);
	assert_int_equal(got_n, put_n);
	assert_int_equal(got_sum, want_sum);
	assert_int_equal(ring__put_many(&r, spans, 40), 40);	/* 4096 / 72 is more */
	assert_int_equal(ring__put_many(&r, spans, 40), 4096 / sizeof(*spans) - 40);
	assert_int_equal(ring__put_many(&r, spans, 40), 0);
	ring__unmap(&r);
	close(fd);
}

/* Pages are got a piece at a time, as they are needed, and what is in them stays. */
static void test_ring__prepares_its_pages(void **state)
{
	int fd = ring_fd(4096 + (4 << 20), 4096, TL_RING_MAGIC, 4 << 20);
	uint64_t sum = 0, before, n_put = 0;
	struct ring r;

	(void)state;
	assert_int_equal(ring__map(&r, fd), 0);
	ring__prepare(&r);
	before = r.ready;
	assert_true(before > 0 && before <= r.bytes);
	ring__prepare(&r);
	assert_int_equal(r.ready, before);
	for (; put(&r, 80, n_put); n_put++)
		ring__prepare(&r);
	assert_int_equal(r.ready, r.bytes);
	assert_int_equal(take(&r, &sum), n_put);
	assert_int_equal(sum, n_put * (n_put - 1) / 2);
	ring__unmap(&r);
	close(fd);
}

enum { WRITERS = 4, EVENTS_EACH = 20000 };
static struct ring shared_ring;
static uint64_t threads_put[WRITERS], threads_sum[WRITERS];

static void *write_events(void *number)
{
	uintptr_t me = (uintptr_t)number;

	for (uint64_t i = 0; i < EVENTS_EACH; i++)
		if (put(&shared_ring, 24 + (i + me) % 10 * 8, i)) {
			threads_put[me]++;
			threads_sum[me] += i;
		}
	return NULL;
}

static void test_ring__several_writers(void **state)
{
	int fd = ring_fd(4096 + 65536, 4096, TL_RING_MAGIC, 65536);
	uint64_t got_n = 0, got_sum = 0, put_n = 0, put_sum = 0;
	pthread_t t[WRITERS];

	(void)state;
	assert_int_equal(ring__map(&shared_ring, fd), 0);
	for (uintptr_t i = 0; i < WRITERS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, write_events, (void *)i), 0);
	for (int i = 0; i < 20000; i++)
		got_n += take(&shared_ring, &got_sum);
	for (int i = 0; i < WRITERS; i++) {
		pthread_join(t[i], NULL);
		put_n += threads_put[i];
		put_sum += threads_sum[i];
	}
	got_n += take(&shared_ring, &got_sum);
	assert_int_equal(got_n, put_n);
	assert_int_equal(got_sum, put_sum);
	assert_int_equal(put_n + shared_ring.shared->n_dropped, WRITERS * EVENTS_EACH);
	ring__unmap(&shared_ring);
	close(fd);
}

/* ---- the watchdog ---- */

static const char *hung;	/* the call that was given up */

static void on_hang(const char *call)
{
	__atomic_store_n(&hung, call, __ATOMIC_RELEASE);
}

/* It sleeps for as long as a call may take: one that is due earlier wakes it, one that is due later
 * does not have to, and each is given up only if it does not return. */
static void test_guard__gives_up_what_hangs(void **state)
{
	struct guard g;
	const char *got = NULL;

	(void)state;
	assert_int_equal(guard__start(&g, on_hang), 0);
	guard__enter(&g, "long", 600000);
	sleep_ms(20);			/* so that it sleeps, most likely */
	assert_true(guard__leave(&g));
	for (int i = 0; i < 1000; i++) {
		guard__enter(&g, "short", 600000 + i % 2 * 10000);
		assert_true(guard__leave(&g));
	}
	assert_null(__atomic_load_n(&hung, __ATOMIC_ACQUIRE));
	guard__enter(&g, "hangs", 1);
	for (int i = 0; i < 60000 && !got; i++) {
		sleep_ms(1);
		got = __atomic_load_n(&hung, __ATOMIC_ACQUIRE);
	}
	assert_non_null(got);
	assert_string_equal(got, "hangs");
	assert_false(guard__leave(&g));
	guard__stop(&g);
}

/* In a process of its own: a call is under way, and over as soon as it hears of us. */
static int call_of_one_that_is_stopped(int out, int in)
{
	struct guard g;
	char byte = 0;
	bool good;

	if (guard__start(&g, on_hang))
		return 2;
	guard__enter(&g, "stopped", 3000);
	if (write(out, &byte, 1) != 1 || read(in, &byte, 1) != 1)
		return 3;
	good = guard__leave(&g);
	guard__stop(&g);
	return good ? 0 : 1;
}

/* Its time passed while nobody could make use of it. */
static void test_guard__does_not_count_a_stop(void **state)
{
	int to[2], from[2], status;
	char byte = 0;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(to) | pipe(from), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		_exit(call_of_one_that_is_stopped(from[1], to[0]));
	assert_int_equal(read(from[0], &byte, 1), 1);
	assert_int_equal(kill(pid, SIGSTOP), 0);
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
	sleep_ms(3500);
	assert_int_equal(kill(pid, SIGCONT), 0);
	assert_int_equal(write(to[1], &byte, 1), 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	for (int i = 0; i < 2; i++) {
		close(to[i]);
		close(from[i]);
	}
}

static void test_guard__gives_more_time(void **state)
{
	struct guard g = { .timeout_ns = 1500000000 };

	(void)state;
	assert_int_equal(more_ns(&g, 1000000), MORE_NS); /* in time: a stop may have ended just before */
	g.n_more = 1;
	assert_int_equal(more_ns(&g, 1000000), 0);
	assert_int_equal(more_ns(&g, LATE_NS + 1), 1500000000);
	g.n_more = MAX_MORE; /* not for ever */
	assert_int_equal(more_ns(&g, LATE_NS + 1), 0);
}

static void test_guard__stops_while_it_sleeps(void **state)
{
	struct guard g;

	(void)state;
	for (int i = 0; i < 50; i++) {
		assert_int_equal(guard__start(&g, on_hang), 0);
		if (i % 2) {
			guard__enter(&g, "long", 600000);
			assert_true(guard__leave(&g));
		}
		guard__stop(&g);	/* would wait for ten minutes */
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_clocks__cases),
		cmocka_unit_test(test_clocks__of_what_is_over), cmocka_unit_test(test_clocks__between_pairs),
		cmocka_unit_test(test_clocks__slewed),
		cmocka_unit_test(test_clocks__keeps_what_is_recent),
		cmocka_unit_test(test_clocks__many_steps),
		cmocka_unit_test(test_names__once_each),
		cmocka_unit_test(test_names__long_and_many),
		cmocka_unit_test(test_buffers__run_out_and_come_back),
		cmocka_unit_test(test_ring__map_cases),
		cmocka_unit_test(test_ring__has_one_owner),
		cmocka_unit_test(test_ring__wraps_and_fills),
		cmocka_unit_test(test_ring__many_at_once),
		cmocka_unit_test(test_ring__prepares_its_pages),
		cmocka_unit_test(test_ring__several_writers),
		cmocka_unit_test(test_guard__gives_up_what_hangs),
		cmocka_unit_test(test_guard__does_not_count_a_stop),
		cmocka_unit_test(test_guard__gives_more_time),
		cmocka_unit_test(test_guard__stops_while_it_sleeps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
