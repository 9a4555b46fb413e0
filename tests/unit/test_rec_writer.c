/* SPDX-License-Identifier: Apache-2.0 */
/* Writing recordings: flushes, kills at any moment, full disks, files that are not ours. */
#include "rec_help.h"

#include "source/file.h"

#include <errno.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>

static int setup(void **state)
{
	static struct rec_path p;

	rec_path__make(&p);
	*state = &p;
	return 0;
}

static int teardown(void **state)
{
	rec_path__remove(*state);
	return 0;
}

static struct rec_writer *open_writer(const char *path)
{
	struct rec_writer *w;

	assert_int_equal(rec_writer__open(path, &rec_header, NULL, &w), 0);
	return w;
}

static void write_events(struct rec_writer *w, uint64_t from, uint64_t to)
{
	for (uint64_t i = from; i < to; i++)
		assert_int_equal(rec_writer__write(w, rec_event(i)), 0);
}

static void test_rec_writer__flushes_leave_no_trace(void **state)
{
	const struct rec_path *p = *state;
	struct rec_writer *w = open_writer(p->file);
	struct rec_writer_stats st;
	struct buf plain = rec_make(20000), flushed;
	uint64_t at = 0, seed = 5;

	while (at < 20000) {
		uint64_t to = at + rec_random(&seed) % 700;

		write_events(w, at, to < 20000 ? to : 20000);
		assert_int_equal(rec_writer__flush(w), 0);
		at = to;
	}
	rec_writer__stats(w, &st);
	assert_int_equal(st.n_events, 20000);
	assert_int_equal(st.n_dropped, 0);
	assert_int_equal(rec_writer__close(w, true), 0);
	flushed = rec_slurp(p->file);
	assert_int_equal(flushed.len, plain.len);
	assert_memory_equal(flushed.data, plain.data, plain.len);
	buf__free(&plain);
	buf__free(&flushed);
}

static void test_rec_writer__a_killed_one_leaves_what_was_flushed(void **state)
{
	const struct rec_path *p = *state;
	struct rec_writer *w = open_writer(p->file);
	struct rec_stats st;
	struct buf b;
	uint64_t n;

	for (uint64_t i = 0; i < 12000; i += 100) {
		write_events(w, i, i + 100);
		if (i % 1000 == 0)
			rec_writer__flush(w);
	}
	rec_writer__flush(w);
	write_events(w, 12000, 12050);	/* less than a second old */
	b = rec_slurp(p->file);		/* what a kill would leave */
	assert_int_equal(rec_check(&b, 12000, &n, &st), 0);
	assert_int_equal(n, 12000);
	assert_false(st.closed);
	assert_int_equal(st.n_damaged + st.n_missing + st.n_cut_bytes, 0);
	buf__free(&b);
	assert_int_equal(rec_writer__close(w, false), 0);
	b = rec_slurp(p->file);		/* given up, but nothing is lost */
	assert_int_equal(rec_check(&b, 12050, &n, &st), 0);
	assert_int_equal(n, 12050);
	assert_false(st.closed);
	buf__free(&b);
}

/* The moment at which small blocks are replaced by a large one, stopped after each byte. */
static void test_rec_writer__killed_while_it_replaces_small_blocks(void **state)
{
	enum { N = 300 };	/* less than a full block */
	const struct rec_path *p = *state;
	struct rec_writer *w = open_writer(p->file);
	struct buf before, after, mix;
	struct rec_stats st;
	uint64_t n, least = N;

	for (uint64_t i = 0; i < N; i += 25) {
		write_events(w, i, i + 25);
		rec_writer__flush(w);
	}
	before = rec_slurp(p->file);
	assert_int_equal(rec_writer__close(w, false), 0);
	after = rec_slurp(p->file);
	assert_true(after.len < before.len);
	buf__init(&mix, 1 << 20);
	buf__append(&mix, before.data, before.len);
	for (size_t i = 0; i <= after.len; i += 7) {
		memcpy(mix.data, after.data, i);
		assert_int_equal(rec_check(&mix, N, &n, &st), 0);
		assert_int_equal(st.n_missing + n, N);
		least = n < least ? n : least;
	}
	assert_true(least > 0 && least < N);	/* the test met both */
	memcpy(mix.data, after.data, after.len);	/* replaced, but not yet cut */
	assert_int_equal(rec_check(&mix, N, &n, &st), 0);
	assert_int_equal(n, N);
	assert_int_equal(st.n_missing, 0);
	buf__free(&before);
	buf__free(&after);
	buf__free(&mix);
}

static void test_rec_writer__refuses_unsound_and_raw_events(void **state)
{
	const struct rec_path *p = *state;
	struct tl_file_hdr raw_header = rec_header;
	struct tl_chunk odd = { .hdr = { .size = 20, .kind = TL_CHUNK } };
	struct tl_raw_sock raw = { .hdr = { .size = sizeof(raw), .kind = TL_RAW_SOCK } };
	struct rec_writer *w = open_writer(p->file);
	struct rec_writer_stats st;

	assert_int_equal(rec_writer__write(w, &odd.hdr), -EINVAL);
	odd.hdr.size = 36;
	assert_int_equal(rec_writer__write(w, &odd.hdr), -EINVAL);
	assert_int_equal(rec_writer__write(w, &raw.hdr), -EINVAL);
	assert_int_equal(rec_writer__write(w, rec_event(0)), 0);
	rec_writer__stats(w, &st);
	assert_int_equal(st.n_events, 1);
	assert_int_equal(rec_writer__close(w, true), 0);
	raw_header.flags = TL_FILE_RAW;
	assert_int_equal(rec_writer__open(p->file, &raw_header, NULL, &w), 0);
	assert_int_equal(rec_writer__write(w, &raw.hdr), 0);
	assert_int_equal(rec_writer__close(w, true), 0);
}

/* ---- files that are there already ---- */

static void put_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void test_rec_writer__does_not_replace_other_files(void **state)
{
	const struct rec_writer_opts force = { .force = true };
	const struct rec_path *p = *state;
	struct rec_writer *w = NULL;
	struct buf b;

	put_file(p->file, "my thesis");
	assert_int_equal(rec_writer__open(p->file, &rec_header, NULL, &w), -EEXIST);
	assert_null(w);
	assert_non_null(strstr(rec_writer_error_text(-EEXIST), "--force"));
	b = rec_slurp(p->file);
	assert_memory_equal(b.data, "my thesis", 9);
	buf__free(&b);
	assert_int_equal(rec_writer__open(p->file, &rec_header, &force, &w), 0);
	write_events(w, 0, 3);
	assert_int_equal(rec_writer__close(w, true), 0);
	put_file(p->file, "short");
	assert_int_equal(rec_writer__open(p->file, &rec_header, NULL, &w), -EEXIST);
	put_file(p->file, "");
	w = open_writer(p->file);	/* an empty file is nobody's */
	assert_int_equal(rec_writer__close(w, true), 0);
}

static void test_rec_writer__check_leaves_all_as_it_is(void **state)
{
	const struct rec_path *p = *state;
	struct rec_writer *w = open_writer(p->file);
	char link[sizeof(p->file) + 8];
	struct buf b;

	write_events(w, 0, 10);
	assert_int_equal(rec_writer_check(p->file, true), -EBUSY);
	assert_int_equal(rec_writer__close(w, true), 0);
	assert_int_equal(rec_writer_check(p->file, false), 0);
	w = open_writer(p->file);	/* not locked any more */
	assert_int_equal(rec_writer__close(w, true), 0);
	put_file(p->file, "my thesis");
	assert_int_equal(rec_writer_check(p->file, false), -EEXIST);
	assert_int_equal(rec_writer_check(p->file, true), 0);
	b = rec_slurp(p->file);
	assert_int_equal(b.len, 9);
	buf__free(&b);
	assert_int_equal(rec_writer_check("/", false), -ENOTSUP);
	assert_int_equal(rec_writer_check("/no/such/dir/x", false), -ENOENT);
	assert_int_equal(rec_writer_check("/dev/null", false), 0);
	unlink(p->file);
	assert_int_equal(rec_writer_check(p->file, false), 0);
	assert_int_equal(access(p->file, F_OK), -1);
	snprintf(link, sizeof(link), "%s.link", p->file);
	assert_int_equal(symlink(p->file, link), 0);
	assert_int_equal(rec_writer_check(link, false), 0);
	assert_int_equal(access(p->file, F_OK), -1);
	unlink(link);
	put_file(p->file, "");
}

static void test_rec_writer__replaces_an_older_recording_whole(void **state)
{
	const struct rec_path *p = *state;
	struct rec_writer *w = open_writer(p->file);
	struct buf want = rec_make(3), got;

	write_events(w, 0, 5000);
	assert_int_equal(rec_writer__close(w, true), 0);
	w = open_writer(p->file);
	write_events(w, 0, 3);
	assert_int_equal(rec_writer__close(w, true), 0);
	got = rec_slurp(p->file);
	assert_int_equal(got.len, want.len);
	assert_memory_equal(got.data, want.data, want.len);
	buf__free(&got);
	buf__free(&want);
}

static void test_rec_writer__one_at_a_time(void **state)
{
	const struct rec_path *p = *state;
	struct rec_writer *w = open_writer(p->file), *second = NULL;
	struct rec_stats st;
	struct buf b;
	uint64_t n;

	write_events(w, 0, 10);
	assert_int_equal(rec_writer__flush(w), 0);
	assert_int_equal(rec_writer__open(p->file, &rec_header, NULL, &second), -EBUSY);
	b = rec_slurp(p->file);
	assert_int_equal(rec_check(&b, 10, &n, &st), 0);
	assert_int_equal(n, 10);	/* the first one's file was not touched */
	buf__free(&b);
	assert_int_equal(rec_writer__close(w, true), 0);
}

static void test_rec_writer__wants_a_regular_file(void **state)
{
	const struct rec_path *p = *state;
	struct rec_writer *w = NULL;

	assert_int_equal(rec_writer__open("/", &rec_header, NULL, &w), -ENOTSUP);
	assert_int_equal(rec_writer__open("/no/such/dir/x", &rec_header, NULL, &w), -ENOENT);
	assert_int_equal(mkfifo(p->file, 0600), 0);
	assert_int_equal(rec_writer__open(p->file, &rec_header, NULL, &w), -ENOTSUP);
	unlink(p->file);
	assert_int_equal(rec_writer__open("/dev/full", &rec_header, NULL, &w), -ENOSPC);
	assert_int_equal(rec_writer__open("/dev/null", &rec_header, NULL, &w), 0);
	write_events(w, 0, 10000);
	assert_int_equal(rec_writer__flush(w), 0);
	assert_int_equal(rec_writer__close(w, true), 0);
	put_file(p->file, "");
}

/* ---- the disk refuses ---- */

/* Writes n events with a flush now and then until the disk refuses. The error must come once, and
 * the file must hold what the writer says it took. Returns how many errors there were. */
static int fill(const char *path, uint64_t n, uint64_t flush_every, int want_err)
{
	struct rec_writer_stats ws;
	struct rec_writer *w;
	struct rec_stats st;
	int n_errors = 0, err = rec_writer__open(path, &rec_header, NULL, &w);
	struct buf b;
	uint64_t got;

	if (err) {
		assert_int_equal(err, want_err);
		return 1;
	}
	for (uint64_t i = 0; i < n; i++) {
		err = rec_writer__write(w, rec_event(i));
		if (!err && flush_every && i % flush_every == 0)
			err = rec_writer__flush(w);
		assert_true(err == 0 || err == want_err);
		n_errors += err != 0;
	}
	rec_writer__stats(w, &ws);
	err = rec_writer__close(w, true);
	assert_true(err == 0 || err == want_err);
	n_errors += err != 0;
	b = rec_slurp(path);
	assert_int_equal(rec_check(&b, n, &got, &st), 0);
	assert_int_equal(st.n_cut_bytes + st.n_damaged + st.n_missing, 0);
	assert_int_equal(st.closed, n_errors == 0);
	if (n_errors && ws.n_dropped) {
		assert_int_equal(got, ws.n_events);
		assert_int_equal(ws.n_events + ws.n_dropped, n);
	}
	buf__free(&b);
	return n_errors;
}

static void test_rec_writer__file_size_limit_anywhere(void **state)
{
	enum { N = 9000 };
	const struct rec_path *p = *state;
	struct rlimit old, limit;
	struct buf b = rec_make(N);
	int n_errors, n_failed = 0;

	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &old);
	for (uint64_t flush_every = 0; flush_every < 2000; flush_every += 900) {
		for (size_t size = 0; size < b.len * 2; size += 1499) {
			limit = (struct rlimit){ size, old.rlim_max };
			unlink(p->file);
			assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
			n_errors = fill(p->file, N, flush_every, -EFBIG);
			setrlimit(RLIMIT_FSIZE, &old);
			assert_true(n_errors <= 1);	/* said once */
			if (size < b.len)
				assert_int_equal(n_errors, 1);
			n_failed += n_errors;
		}
	}
	assert_true(n_failed > 10);
	buf__free(&b);
}

/* In a child with a mount namespace of its own. Exit status: 0 good, 77 not allowed. */
static int fill_small_disk(const char *dir)
{
	char path[128];

	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("tmpfs", dir, "tmpfs", 0, "size=64k"))
		return 77;
	snprintf(path, sizeof(path), "%s/x.tlag", dir);
	return fill(path, 60000, 0, -ENOSPC) == 1 && fill(path, 60000, 50, -ENOSPC) == 1 ? 0 : 1;
}

static void test_rec_writer__full_disk(void **state)
{
	const struct rec_path *p = *state;
	int status;
	pid_t pid;

	put_file(p->file, "");
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(fill_small_disk(p->dir));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- and back ---- */

static void test_src_file__reads_what_was_written(void **state)
{
	const struct rec_path *p = *state;
	struct rec_writer *w = open_writer(p->file);
	const struct tl_hdr *ev;
	struct src_file *f;

	write_events(w, 0, 9000);
	assert_int_equal(rec_writer__close(w, true), 0);
	assert_int_equal(src_file__open(p->file, &f), 0);
	for (uint64_t i = 0; i < 9000; i++) {
		assert_int_equal(rec_reader__next(src_file__reader(f), &ev), 1);
		assert_memory_equal(ev, rec_event(i), ev->size);
	}
	assert_int_equal(rec_reader__next(src_file__reader(f), &ev), 0);
	assert_true(rec_reader__stats(src_file__reader(f))->closed);
	src_file__close(f);
	src_file__close(NULL);
	assert_int_equal(src_file__open("/", &f), -ENOMSG);
	assert_int_equal(src_file__open("/dev/null", &f), -ENOMSG);
	assert_int_equal(src_file__open("/no/such/file", &f), -ENOENT);
}

static void test_rec_writer__oom(void **state)
{
	const struct rec_path *p = *state;
	int n_failed = 0;

	OOM_LOOP({
		struct rec_writer *w = NULL;
		int err = rec_writer__open(p->file, &rec_header, NULL, &w);

		assert_true(err == 0 || (err == -ENOMEM && !w));
		n_failed += err != 0;
		if (w)
			assert_int_equal(rec_writer__write(w, rec_event(1)), 0);
		assert_int_equal(rec_writer__close(w, true), 0);
	});
	assert_true(n_failed >= 2);
	OOM_LOOP({
		struct src_file *f = NULL;
		int err = src_file__open(p->file, &f);

		assert_true(err == 0 || (err == -ENOMEM && !f));
		src_file__close(f);
	});
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_rec_writer__flushes_leave_no_trace, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			test_rec_writer__a_killed_one_leaves_what_was_flushed, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_rec_writer__killed_while_it_replaces_small_blocks, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rec_writer__refuses_unsound_and_raw_events,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_rec_writer__does_not_replace_other_files,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_rec_writer__check_leaves_all_as_it_is, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_rec_writer__replaces_an_older_recording_whole,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_rec_writer__one_at_a_time, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rec_writer__wants_a_regular_file, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_rec_writer__file_size_limit_anywhere, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_rec_writer__full_disk, setup, teardown),
		cmocka_unit_test_setup_teardown(test_src_file__reads_what_was_written, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_rec_writer__oom, setup, teardown),
	};

	return cmocka_run_group_tests_name("rec_writer", tests, NULL, NULL);
}
