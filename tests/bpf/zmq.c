/* SPDX-License-Identifier: Apache-2.0 */
/* Frames that go through libzmq's two functions, here with functions of our own of that name, in each layout
 * of a frame that libzmq has. */
#include "capture.h"

#include "base/util.h"
#include <pthread.h>

/* ---- what passes for libzmq ---- */

enum { SMALL = 101, LONG = 102, DELIMITER = 103, CONST = 104, SHARED = 105 };
enum { MORE = 1, SNDMORE = 2 };

struct content {
	void *data;
	size_t size;
};
union msg {
	uint8_t raw[64];
	struct {
		uint64_t metadata;
		union {
			struct content *content;	/* LONG, SHARED */
			struct content constant;
			uint8_t bytes[33];		/* SMALL */
		};
	};
};
_Static_assert(sizeof(union msg) == 64, "as zmq_msg_t");

int zmq_msg_send(union msg *m, void *sock, int flags);
int zmq_msg_recv(union msg *m, void *sock, int flags);

/* The next frame that arrives, and what the call returns. */
static _Thread_local union msg arriving;
static _Thread_local int result;

__attribute__((noipa)) int zmq_msg_send(union msg *m, void *sock, int flags)
{
	static volatile int sink;

	sink = flags + !sock;
	memset(m->raw, 0, sizeof(m->raw));
	m->raw[42] = SMALL;
	return sink;
}

__attribute__((noipa)) int zmq_msg_recv(union msg *m, void *sock, int flags)
{
	static volatile int sink;

	sink = flags + !sock;
	if (result >= 0)
		*m = arriving;
	return sink < 0 ? sink : result;
}

/* ---- frames ---- */

static uint8_t bytes[200000];
static struct content blocks[64];

static union msg frame(int type, size_t size, int flags)
{
	static size_t n_blocks;
	union msg m = { .metadata = 0 };

	m.raw[42] = type;
	m.raw[43] = flags;
	if (type == SMALL) {
		memcpy(m.bytes, bytes, size);
		m.raw[41] = size;
	} else if (type == CONST) {
		m.constant = (struct content){ bytes, size };
	} else {
		m.content = &blocks[n_blocks++ % ARRAY_SIZE(blocks)];
		*m.content = (struct content){ bytes, size };
	}
	return m;
}

static void send_one(union msg m, int sock, int flags)
{
	zmq_msg_send(&m, (void *)(uintptr_t)sock, flags);
}

static void recv_one(union msg m, int sock, int ret)
{
	union msg into;

	arriving = m;
	result = ret;
	zmq_msg_recv(&into, (void *)(uintptr_t)sock, 0);
}

/* ---- captures ---- */

static void say(void *ctx, const char *probe, int err, const char *reason)
{
	(void)ctx;
	if (err)
		print_message("%s: %d, %s\n", probe, err, reason);
}

static struct capture *capture_frames(scenario fn, void *arg)
{
	struct capture *c = capture_open(NULL);
	struct child child;
	int status;

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = 1 + i % 251;
	child = child_start(fn, arg);
	assert_int_equal(src_bpf__attach_engine(c->bpf, child.pid, TL_ENGINE_VLLM, say, NULL), 3);
	assert_int_equal(src_bpf__add_target_mode(c->bpf, child.pid, TL_TARGET_QUIET), 0);
	child_go(&child);
	status = child_end(&child);
	if (status)
		fail_msg("the child ended with %d (%d)", status, status >> 8);
	capture_drain(c);
	assert_int_equal(c->n_lost, 0);
	src_bpf__detach_engine(c->bpf, child.pid);
	return c;
}

static const struct tl_raw_zmq *next(struct capture *c, size_t *at)
{
	const struct tl_raw_zmq *e = capture_next(c, TL_RAW_ZMQ, at);

	assert_non_null(e);
	assert_int_equal(e->hdr.size, (sizeof(*e) + e->head + 7) / 8 * 8);
	for (size_t i = sizeof(*e) + e->head; i < e->hdr.size; i++)
		assert_int_equal(((const uint8_t *)e)[i], 0);
	return e;
}

static void assert_frame(const struct tl_raw_zmq *e, int sock, int dir, size_t size, bool more)
{
	assert_int_equal(e->sock, sock);
	assert_int_equal(e->dir, dir);
	assert_int_equal(e->total, size);
	assert_int_equal(e->head, size < 60 << 10 ? size : 60 << 10);
	assert_int_equal(e->has_more, more);
	assert_int_equal(e->unknown, 0);
	assert_memory_equal(e->data, bytes, e->head);
}

/* ---- tests ---- */

static const struct shape {
	int type;
	size_t size;
} shapes[] = {
	{ SMALL, 0 }, { SMALL, 1 }, { SMALL, 33 }, { LONG, 34 }, { LONG, 64 }, { LONG, 65 }, { SHARED, 1000 },
	{ LONG, 1024 }, { LONG, 1025 }, { CONST, 4096 }, { LONG, 4097 }, { SHARED, 16384 }, { LONG, 16385 },
	{ LONG, 61440 }, { LONG, 61441 }, { SHARED, 200000 }, { CONST, 0 },
};

static int do_shapes(void *arg)
{
	(void)arg;
	for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
		/* Of a frame that is sent, the call's flags count, not its own. */
		send_one(frame(shapes[i].type, shapes[i].size, i % 2 ? MORE : 0), 1, i % 3 ? SNDMORE : 0);
		recv_one(frame(shapes[i].type, shapes[i].size, i % 2 ? MORE : 0), 2, shapes[i].size);
	}
	return 0;
}

static void test_zmq__every_layout_and_size(void **state)
{
	struct capture *c = capture_frames(do_shapes, NULL);
	size_t at = 0;

	for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
		assert_frame(next(c, &at), 1, TL_OUT, shapes[i].size, i % 3);
		assert_frame(next(c, &at), 2, TL_IN, shapes[i].size, i % 2);
	}
	assert_null(capture_next(c, TL_RAW_ZMQ, &at));
	capture_close(c);
	(void)state;
}

/* Nothing came, then something does: the frame is the second call's. */
static int do_empty_handed(void *arg)
{
	(void)arg;
	recv_one(frame(SMALL, 5, 0), 7, -1);
	recv_one(frame(SMALL, 6, 0), 8, 6);
	return 0;
}

static void test_zmq__a_call_that_got_nothing(void **state)
{
	struct capture *c = capture_frames(do_empty_handed, NULL);
	size_t at = 0;

	assert_frame(next(c, &at), 8, TL_IN, 6, false);
	assert_int_equal(capture_count(c, TL_RAW_ZMQ), 1);
	capture_close(c);
	(void)state;
}

static int do_strange(void *arg)
{
	union msg m = frame(SMALL, 3, 0);

	(void)arg;
	send_one(frame(DELIMITER, 3, 0), 1, 0);		/* no frame that is sent has this type */
	m.raw[41] = 34;
	send_one(m, 1, 0);				/* longer than it can be */
	m = frame(LONG, 10, 0);
	m.content = (void *)8;
	send_one(m, 1, 0);				/* points nowhere */
	recv_one(frame(LONG, 100, 0), 1, 99);		/* not as long as the call says */
	return 0;
}

static void test_zmq__other_layouts_are_said(void **state)
{
	struct capture *c = capture_frames(do_strange, NULL);
	size_t at = 0;

	for (int i = 0; i < 4; i++) {
		const struct tl_raw_zmq *e = next(c, &at);

		assert_int_equal(e->unknown, 1);
		assert_int_equal(e->head, 0);
		assert_int_equal(e->total, 0);
	}
	assert_null(capture_next(c, TL_RAW_ZMQ, &at));
	capture_close(c);
	(void)state;
}

/* Memory that was never touched cannot be read in a probe: then the frame's length is known, its bytes not. */
static int do_not_resident(void *arg)
{
	union msg m = frame(LONG, 5000, 0);

	(void)arg;
	m.content->data = mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	send_one(m, 1, 0);
	return 0;
}

static void test_zmq__not_in_memory(void **state)
{
	struct capture *c = capture_frames(do_not_resident, NULL);
	size_t at = 0;
	const struct tl_raw_zmq *e = next(c, &at);

	assert_int_equal(e->total, 5000);
	assert_int_equal(e->head, 0);
	assert_int_equal(e->unknown, 0);
	capture_close(c);
	(void)state;
}

enum { N_THREADS = 8, N_EACH = 500 };

static void *thread_main(void *arg)
{
	int sock = (intptr_t)arg;

	for (int i = 0; i < N_EACH; i++) {
		send_one(frame(SMALL, i % 34, 0), sock, 0);
		recv_one(frame(SMALL, (i + sock) % 34, 0), sock + 100, (i + sock) % 34);
	}
	return NULL;
}

static int do_threads(void *arg)
{
	pthread_t threads[N_THREADS];

	(void)arg;
	for (intptr_t i = 0; i < N_THREADS; i++)
		if (pthread_create(&threads[i], NULL, thread_main, (void *)(i + 1)))
			return 1;
	for (int i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
	return 0;
}

static void test_zmq__threads(void **state)
{
	struct capture *c = capture_frames(do_threads, NULL);
	int n[2][N_THREADS + 1] = { 0 };
	const struct tl_raw_zmq *e;
	size_t at = 0;

	while ((e = capture_next(c, TL_RAW_ZMQ, &at))) {
		bool in = e->dir == TL_IN;
		int sock = e->sock - 100 * in;
		int *i = &n[in][sock];

		assert_frame(e, e->sock, e->dir, (*i + (in ? sock : 0)) % 34, false);
		assert_int_not_equal(e->hdr.tid, e->hdr.tgid);
		++*i;
	}
	for (int i = 1; i <= N_THREADS; i++) {
		assert_int_equal(n[0][i], N_EACH);
		assert_int_equal(n[1][i], N_EACH);
	}
	capture_close(c);
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_zmq__every_layout_and_size),
		cmocka_unit_test(test_zmq__a_call_that_got_nothing),
		cmocka_unit_test(test_zmq__other_layouts_are_said),
		cmocka_unit_test(test_zmq__not_in_memory),
		cmocka_unit_test(test_zmq__threads),
	};

	return cmocka_run_group_tests_name("zmq", tests, NULL, NULL);
}
