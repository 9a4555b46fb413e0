/* SPDX-License-Identifier: Apache-2.0 */
/* Reading recordings: whole, cut at every byte, with flipped bits, by older and newer writers. */
#include "rec_help.h"

#include "parse/block.h"

#include <errno.h>
#include <zlib.h>

static void test_rec_reader__gives_back_what_was_written(void **state)
{
	enum { N = 40000 };
	struct buf b = rec_make(N);
	struct rec_stats st;
	uint64_t n;

	(void)state;
	assert_true(b.len > 3 * sizeof(struct tl_block_hdr));
	assert_int_equal(rec_check(&b, N, &n, &st), 0);
	assert_int_equal(n, N);
	assert_true(st.closed);
	assert_int_equal(st.n_damaged + st.n_missing + st.n_cut_bytes + st.n_unknown + st.n_invalid,
			 0);
	buf__free(&b);
}

static void test_rec_reader__header(void **state)
{
	struct buf b = rec_make(0);
	const struct rec_input in = { rec_read_at, &b };
	struct tl_file_hdr want = rec_header;
	struct rec_reader *r;
	const struct tl_hdr *ev;
	char text[64];

	(void)state;
	memcpy(want.magic, TL_FILE_MAGIC, sizeof(want.magic));
	want.hdr_size = sizeof(want);
	want.major = TL_FILE_MAJOR;
	want.minor = TL_FILE_MINOR;
	assert_int_equal(rec_reader__new(&in, &r), 0);
	assert_memory_equal(rec_reader__header(r), &want, sizeof(want));
	assert_int_equal(rec_reader__next(r, &ev), 0);
	assert_int_equal(rec_reader__next(r, &ev), 0);	/* the end stays the end */
	assert_false(rec_reader__trouble(r, text, sizeof(text)));
	rec_reader__free(r);
	rec_reader__free(NULL);
	buf__free(&b);
}

static void test_rec_reader__cut_at_every_byte(void **state)
{
	enum { N = 60 };
	struct buf b = rec_make(N);
	size_t len = b.len;
	uint64_t n, most = 0;
	struct rec_stats st;

	(void)state;
	for (b.len = 0; b.len < len; b.len++) {
		int err = rec_check(&b, N, &n, &st);

		if (b.len < sizeof(struct tl_file_hdr)) {
			assert_int_equal(err, b.len == 0 ? -ENODATA : -EBADMSG);
			continue;
		}
		assert_int_equal(err, 0);
		assert_false(st.closed);
		assert_true(n >= most);
		most = n;
		/* each byte is either used or reported */
		if (n == 0)
			assert_int_equal(st.n_cut_bytes, b.len - sizeof(struct tl_file_hdr));
	}
	assert_int_equal(most, N);
	buf__free(&b);
}

static void test_rec_reader__every_byte_damaged(void **state)
{
	enum { N = 60 };
	struct buf b = rec_make(N);
	uint64_t n;
	struct rec_stats st;

	(void)state;
	for (size_t i = 0; i < b.len; i++) {
		/* all bits of the headers, one per byte of the rest */
		for (unsigned int bit = i < 300 ? 0 : i % 8; bit < (i < 300 ? 8 : i % 8 + 1);
		     bit++) {
			int err;

			b.data[i] ^= (uint8_t)(1u << bit);
			err = rec_check(&b, N, &n, &st);
			if (i >= sizeof(struct tl_file_hdr)) {
				assert_int_equal(err, 0);
				/* the block or its totals are gone, and it shows */
				assert_true(n == 0 || !st.closed);
				assert_true(n == 0 || n == N);
			}
			b.data[i] ^= (uint8_t)(1u << bit);
		}
	}
	assert_int_equal(rec_check(&b, N, &n, &st), 0);
	assert_int_equal(n, N);
	buf__free(&b);
}

static void test_rec_reader__skips_a_damaged_block_and_counts_its_events(void **state)
{
	enum { N = 40000 };
	struct buf b = rec_make(N);
	struct tl_block_hdr h;
	struct rec_stats st;
	uint64_t n;

	(void)state;
	memcpy(&h, b.data + sizeof(struct tl_file_hdr), sizeof(h));
	b.data[sizeof(struct tl_file_hdr) + sizeof(h) + 100] ^= 1;
	assert_int_equal(rec_check(&b, N, &n, &st), 0);
	assert_int_equal(n, N - h.n_events);
	assert_int_equal(st.n_missing, h.n_events);
	assert_int_equal(st.n_damaged, 1);
	assert_true(st.closed);
	buf__free(&b);
}

static void test_rec_reader__garbage_between_blocks(void **state)
{
	enum { N = 20000 };
	struct buf b = rec_make(N), c;
	struct tl_block_hdr h;
	struct rec_stats st;
	uint64_t n;
	size_t at;

	(void)state;
	memcpy(&h, b.data + sizeof(struct tl_file_hdr), sizeof(h));
	at = sizeof(struct tl_file_hdr) + sizeof(h) + h.stored_bytes;
	buf__init(&c, 64 << 20);
	buf__append(&c, b.data, at);
	for (uint32_t i = 0; i < 50000; i++)	/* more than one window of the search */
		buf__append(&c, i % 3 ? &h.magic : &i, sizeof(i));
	buf__append(&c, b.data + at, b.len - at);
	assert_int_equal(rec_check(&c, N, &n, &st), 0);
	assert_int_equal(n, N);
	assert_int_equal(st.n_damaged, 1);
	assert_int_equal(st.n_missing, 0);
	buf__free(&b);
	buf__free(&c);
}

static const struct {
	const char *bytes;
	size_t len;
	int err;
	const char *text;
} refused[] = {
	{ "", 0, -ENODATA, "empty" },
	{ "{\"kind\":\"chunk\"}", 16, -ENOMSG, "not a tokenlag recording" },
	{ "\x7f" "ELF", 4, -ENOMSG, "not a tokenlag recording" },
	{ "\x89TLAG\n\x1a\0\0\0\0\0\0\0\0\0\0\0", 18, -ENOMSG, "not a token" }, /* copied as text */
	{ "\x89TLAG", 5, -EBADMSG, "ends within its header" },
	{ TL_FILE_MAGIC "\xd8\0\1\0\0\0\0\0\0\0\0\0", 20, -EBADMSG, "ends within its header" },
	{ TL_FILE_MAGIC "\xd8\0\2\0\0\0\0\0\0\0\0\0", 20, -EPROTONOSUPPORT, "newer tokenlag" },
	{ TL_FILE_MAGIC "\4\0\1\0\0\0\0\0\0\0\0\0", 20, -EBADMSG, "ends within" },
};

static void test_rec_reader__refuses_foreign_files(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		struct rec_reader *r = (void *)1;
		struct rec_input in = { rec_read_at, NULL };
		struct buf b;

		buf__init(&b, 100);
		buf__append(&b, refused[i].bytes, refused[i].len);
		in.ctx = &b;
		assert_int_equal(rec_reader__new(&in, &r), refused[i].err);
		assert_ptr_equal(r, (void *)1);
		assert_non_null(strstr(rec_error_text(refused[i].err), refused[i].text));
		buf__free(&b);
	}
	assert_string_equal(rec_error_text(-EACCES), strerror(EACCES));
}

/* ---- other versions ---- */

static void seal(struct tl_block_hdr *h, const void *behind)
{
	uLong sum;

	h->crc32 = 0;
	sum = crc32(0, (const Bytef *)h, sizeof(*h));
	h->crc32 = (uint32_t)crc32(sum, behind, h->hdr_size - (uInt)sizeof(*h) + h->stored_bytes);
}

/* A recording whose headers are longer than ours, with a kind of block and one of coding that we do
 * not know. */
static void test_rec_reader__takes_a_newer_minor_version(void **state)
{
	enum { N = 50 };
	static const uint8_t more[16] = { 1, 2, 3 };
	struct buf b = rec_make(N), c;
	struct tl_file_hdr fh;
	struct tl_block_hdr h, odd;
	struct rec_stats st;
	uint8_t block[20000];
	uint64_t n;

	(void)state;
	memcpy(&fh, b.data, sizeof(fh));
	fh.hdr_size += sizeof(more);
	fh.minor = 77;
	memcpy(&h, b.data + sizeof(fh), sizeof(h));
	assert_true(h.stored_bytes < sizeof(block) - sizeof(more));
	buf__init(&c, 64 << 20);
	buf__append(&c, &fh, sizeof(fh));
	buf__append(&c, more, sizeof(more));
	/* a kind of block from the future */
	odd = (struct tl_block_hdr){ .magic = TL_BLOCK_MAGIC, .hdr_size = sizeof(odd), .kind = 99,
				     .stored_bytes = sizeof(more) };
	seal(&odd, more);
	buf__append(&c, &odd, sizeof(odd));
	buf__append(&c, more, sizeof(more));
	/* our events behind a longer header */
	h.hdr_size += sizeof(more);
	memcpy(block, more, sizeof(more));
	memcpy(block + sizeof(more), b.data + sizeof(fh) + sizeof(h), h.stored_bytes);
	seal(&h, block);
	buf__append(&c, &h, sizeof(h));
	buf__append(&c, block, sizeof(more) + h.stored_bytes);
	assert_int_equal(rec_check(&c, N, &n, &st), 0);
	assert_int_equal(n, N);
	assert_int_equal(st.n_damaged + st.n_missing + st.n_cut_bytes, 0);
	/* a coding from the future: its events are missing, those behind it are not */
	odd.kind = TL_BLOCK_EVENTS;
	odd.coding = 99;
	odd.first_event = N;
	odd.n_events = 10;
	seal(&odd, more);
	buf__append(&c, &odd, sizeof(odd));
	buf__append(&c, more, sizeof(more));
	assert_int_equal(rec_check(&c, N, &n, &st), 0);
	assert_int_equal(n, N);
	assert_int_equal(st.n_damaged, 1);
	buf__free(&b);
	buf__free(&c);
}

/* Packs records as they are into a recording in memory. */
static struct buf pack(const void *events, size_t len)
{
	struct block_packer *p = block_packer__new();
	struct tl_file_hdr fh = rec_header;
	const void *block;
	struct buf b;
	size_t n;

	assert_non_null(p);
	memcpy(fh.magic, TL_FILE_MAGIC, sizeof(fh.magic));
	fh.hdr_size = sizeof(fh);
	fh.major = TL_FILE_MAJOR;
	buf__init(&b, 1 << 20);
	buf__append(&b, &fh, sizeof(fh));
	assert_int_equal(block_packer__pack(p, events, len, 0, &block, &n), 0);
	buf__append(&b, block, n);
	block_packer__free(p);
	return b;
}

static void test_rec_reader__unknown_invalid_and_shorter_events(void **state)
{
	struct {
		struct tl_chunk chunk;
		struct { struct tl_hdr hdr; uint64_t x[2]; } unknown;
		struct tl_step lying;
		struct { struct tl_hdr hdr; uint32_t req, bytes; } older;
		struct tl_hdr bare;
		struct { struct tl_chunk known; uint64_t more; } newer;
	} ev = {
		.chunk = { .hdr = { sizeof(ev.chunk), TL_CHUNK, 0, 0, 0, 1 }, .req = 5 },
		.unknown = { .hdr = { sizeof(ev.unknown), 200, 0, 0, 0, 2 }, .x = { 3, 4 } },
		.lying = { .hdr = { sizeof(ev.lying), TL_STEP, 0, 0, 0, 3 }, .n_members = 9 },
		.older = { .hdr = { sizeof(ev.older), TL_CHUNK, 0, 0, 0, 4 }, .req = 6,
			   .bytes = 7 },
		.bare = { sizeof(ev.bare), TL_CHUNK, 0, 0, 0, 5 },
		.newer = { .known.hdr = { sizeof(ev.newer), TL_CHUNK, 0, 0, 0, 6 },
			   .known.req = 8 },
	};
	struct buf b = pack(&ev, sizeof(ev));
	const struct rec_input in = { rec_read_at, &b };
	const struct tl_hdr *got;
	const struct tl_chunk *chunk;
	struct rec_reader *r;
	char text[256];

	(void)state;
	assert_int_equal(rec_reader__new(&in, &r), 0);
	assert_int_equal(rec_reader__next(r, &got), 1);
	assert_memory_equal(got, &ev.chunk, sizeof(ev.chunk));
	assert_int_equal(rec_reader__next(r, &got), 1);
	chunk = (const void *)got;
	assert_int_equal(chunk->hdr.ts_ns, 4);
	assert_int_equal(chunk->bytes, 7);
	assert_int_equal(chunk->n_tokens, 0);	/* what the older writer did not know */
	assert_int_equal(chunk->write_us, 0);
	assert_int_equal(rec_reader__next(r, &got), 1);
	assert_memory_equal(got, &ev.newer, sizeof(ev.newer));
	assert_int_equal(rec_reader__next(r, &got), 0);
	assert_int_equal(rec_reader__stats(r)->n_unknown, 1);
	assert_int_equal(rec_reader__stats(r)->n_invalid, 2);
	assert_true(rec_reader__trouble(r, text, sizeof(text)));
	assert_non_null(strstr(text, "events of kinds that only a newer tokenlag knows: 1"));
	assert_non_null(strstr(text, "events that contradict themselves: 2"));
	rec_reader__free(r);

	/* those who want all get all, as it is */
	assert_int_equal(rec_reader__new(&in, &r), 0);
	rec_reader__want_all(r);
	for (const uint8_t *p = (const uint8_t *)&ev; p < (const uint8_t *)(&ev + 1);
	     p += got->size) {
		assert_int_equal(rec_reader__next(r, &got), 1);
		assert_memory_equal(got, p, ((const struct tl_hdr *)p)->size);
	}
	assert_int_equal(rec_reader__next(r, &got), 0);
	rec_reader__free(r);
	buf__free(&b);
}

/* Events of all kinds and sizes, full of noise: columns would be longer than the events. */
static void test_rec_reader__noise(void **state)
{
	static uint64_t raw[TL_BLOCK_MAX / sizeof(uint64_t)];
	const uint8_t *p = (const uint8_t *)raw;
	uint64_t seed = 11;
	size_t len = 0;
	struct buf b;
	struct rec_input in = { rec_read_at, &b };
	const struct tl_hdr *got;
	struct rec_reader *r;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(raw); i++)
		raw[i] = rec_random(&seed);
	while (len < sizeof(raw)) {
		struct tl_hdr *ev = (struct tl_hdr *)((uint8_t *)raw + len);
		size_t size = 24 + 8 * (rec_random(&seed) % 300);

		if (sizeof(raw) - len - size < 24 || size > sizeof(raw) - len)
			size = sizeof(raw) - len;
		ev->size = (uint16_t)size;
		ev->kind %= TL_RAW_FIRST;
		len += size;
	}
	b = pack(raw, len);
	assert_int_equal(
		((const struct tl_block_hdr *)(b.data + sizeof(struct tl_file_hdr)))->coding,
		TL_CODING_ZSTD);
	assert_int_equal(rec_reader__new(&in, &r), 0);
	rec_reader__want_all(r);
	for (; p < (const uint8_t *)(raw + ARRAY_SIZE(raw)); p += got->size) {
		assert_int_equal(rec_reader__next(r, &got), 1);
		assert_memory_equal(got, p, ((const struct tl_hdr *)p)->size);
	}
	assert_int_equal(rec_reader__next(r, &got), 0);
	rec_reader__free(r);
	buf__free(&b);
}

static int64_t broken_disk(void *ctx, uint64_t offset, void *buf, size_t len)
{
	return offset >= sizeof(struct tl_file_hdr) ? -EIO : rec_read_at(ctx, offset, buf, len);
}

static void test_rec_reader__passes_on_read_errors(void **state)
{
	struct buf b = rec_make(10);
	const struct rec_input in = { broken_disk, &b };
	const struct tl_hdr *ev;
	struct rec_reader *r;

	(void)state;
	assert_int_equal(rec_reader__new(&in, &r), 0);
	assert_int_equal(rec_reader__next(r, &ev), -EIO);
	rec_reader__free(r);
	buf__free(&b);
}

static void test_rec_reader__oom(void **state)
{
	struct buf b = rec_make(10);
	const struct rec_input in = { rec_read_at, &b };
	int n_failed = 0;

	(void)state;
	OOM_LOOP({
		struct rec_reader *r = NULL;
		int err = rec_reader__new(&in, &r);

		assert_true(err == 0 || (err == -ENOMEM && !r));
		n_failed += err != 0;
		rec_reader__free(r);
	});
	assert_true(n_failed >= 2);
	OOM_LOOP(block_packer__free(block_packer__new()));
	buf__free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rec_reader__gives_back_what_was_written),
		cmocka_unit_test(test_rec_reader__header),
		cmocka_unit_test(test_rec_reader__cut_at_every_byte),
		cmocka_unit_test(test_rec_reader__every_byte_damaged),
		cmocka_unit_test(test_rec_reader__skips_a_damaged_block_and_counts_its_events),
		cmocka_unit_test(test_rec_reader__garbage_between_blocks),
		cmocka_unit_test(test_rec_reader__refuses_foreign_files),
		cmocka_unit_test(test_rec_reader__takes_a_newer_minor_version),
		cmocka_unit_test(test_rec_reader__unknown_invalid_and_shorter_events),
		cmocka_unit_test(test_rec_reader__noise),
		cmocka_unit_test(test_rec_reader__passes_on_read_errors),
		cmocka_unit_test(test_rec_reader__oom),
	};

	return cmocka_run_group_tests_name("recording", tests, NULL, NULL);
}
