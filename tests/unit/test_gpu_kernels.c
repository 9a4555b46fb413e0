/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of kernels by device: what each rank of a server took, in the model, in JSON and in text. */
#include "gpu_written.h"

#include <cjson/cJSON.h>
#include <stdlib.h>

/* So many ranks with a device each; a kernel of the later ones takes `slower` times as long. */
static struct gpu_feed ranks(uint32_t n, double slower)
{
	struct gpu_feed f = gpu_feed_new();

	assert_non_null(f.m);
	for (uint32_t r = 0; r < n; r++) {
		feed_engine(&f, PID + r, PID);
		feed_process(&f, PID + r, r);
		feed_clock(&f, -1);
		feed_eager(&f, -0.9, 10);
		for (int k = 0; k < 4; k++)
			feed_kernel(&f, 10 + k, 10.1 + k, 10.1 + k + 0.2 * (r ? slower : 1), NAME_SAMPLE);
		feed_sync(&f, 14.9, 15);
	}
	feed_step(&f, 9.9, 15, 1, 0);
	gpu_feed_done(&f);
	return f;
}

static const struct gpu_kernel *kernel(const struct gpu_feed *f, const char *name)
{
	for (size_t i = 0; i < f->v.gpu->n_kernels; i++)
		if (!strcmp(f->v.gpu->kernels[i].name, name))
			return &f->v.gpu->kernels[i];
	fail_msg("no %s", name);
	return NULL;
}

/* The row of a kernel in JSON; *ret_doc is to be deleted. */
static const cJSON *row(const struct gpu_feed *f, const char *name, cJSON **ret_doc)
{
	char *text = gpu_written(f, true, 200);
	const cJSON *k;

	*ret_doc = cJSON_Parse(text);
	free(text);
	assert_non_null(*ret_doc);
	cJSON_ArrayForEach(k, cJSON_GetObjectItem(*ret_doc, "kernels"))
		if (!strcmp(cJSON_GetObjectItem(k, "name")->valuestring, name))
			return k;
	fail_msg("no %s", name);
	return NULL;
}

static int number(const cJSON *o, const char *key)
{
	const cJSON *at = cJSON_GetObjectItem(o, key);

	assert_true(cJSON_IsNumber(at));
	return at->valueint;
}

static void test_gpu_kernels__of_each_device(void **state)
{
	struct gpu_feed f = ranks(3, 2);
	const struct gpu_kernel *k = kernel(&f, "argmax_kernel");
	uint64_t n = 0, total_ns = 0;

	(void)state;
	assert_int_equal(k->n_on, 3);
	for (uint32_t r = 0; r < 3; r++) {
		const struct gpu_kernel_on *on = &f.v.gpu->kernels_on[k->first_on + r];

		assert_int_equal(on->tgid, PID + r);
		assert_int_equal(on->device, r);
		assert_int_equal(on->n, 4);
		assert_int_equal(on->total_ns, 4 * (r ? 400000 : 200000));
		assert_in_range(on->p50_ns, r ? 398000 : 199000, r ? 402000 : 201000);
		n += on->n;
		total_ns += on->total_ns;
	}
	assert_int_equal(k->n, n);
	assert_int_equal(k->total_ns, total_ns);
	assert_in_range(k->p50_ns, 398000, 402000);
	gpu_feed_free(&f);
}

static void test_gpu_kernels__json(void **state)
{
	struct gpu_feed one = ranks(1, 1), two = ranks(2, 2);
	const cJSON *k, *on;
	cJSON *doc;

	(void)state;
	k = row(&one, "argmax_kernel", &doc);
	assert_int_equal(number(k, "device"), 0);
	assert_int_equal(number(k, "pid"), PID);
	assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(k, "by_device")), 1);
	cJSON_Delete(doc);
	k = row(&two, "argmax_kernel", &doc);
	assert_true(cJSON_IsNull(cJSON_GetObjectItem(k, "device")));
	assert_true(cJSON_IsNull(cJSON_GetObjectItem(k, "pid")));
	assert_int_equal(number(k, "n"), 8);
	assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(k, "by_device")), 2);
	on = cJSON_GetArrayItem(cJSON_GetObjectItem(k, "by_device"), 1);
	assert_int_equal(number(on, "device"), 1);
	assert_int_equal(number(on, "pid"), PID + 1);
	assert_int_equal(number(on, "n"), 4);
	assert_true(cJSON_GetObjectItem(on, "total_ms")->valuedouble == 1.6);
	cJSON_Delete(doc);
	gpu_feed_free(&one);
	gpu_feed_free(&two);
}

static void test_gpu_kernels__text_says_where_devices_differ(void **state)
{
	struct gpu_feed same = ranks(2, 1), differ = ranks(2, 2);
	char *text = gpu_written(&same, false, 200);

	(void)state;
	assert_non_null(strstr(text, "argmax_kernel"));
	assert_null(strstr(text, "p50 us by device"));
	free(text);
	text = gpu_written(&differ, false, 200);
	assert_non_null(strstr(text, "p50 us by device: 200.0 on 0 of pid 500, 400.0 on 1 of pid 501\n"));
	free(text);
	gpu_feed_free(&same);
	gpu_feed_free(&differ);
}

/* More than are told apart: what is beyond stands together, and nothing is missing. */
static void test_gpu_kernels__too_many_devices(void **state)
{
	enum { MANY = 100, MAX_DEVICES = 16 /* as in gpu_kernels.c */ };
	struct gpu_feed f = gpu_feed_new();
	const struct gpu_kernel *k;
	uint64_t n = 0;

	(void)state;
	assert_non_null(f.m);
	feed_engine(&f, PID, PID);
	feed_process(&f, PID, 0);
	feed_clock(&f, -1);
	for (uint32_t i = 0; i < MANY; i++) {
		struct tl_gpu_span s;

		f.device = i;
		s = span_of(&f, 10 + i * 0.001, 10 + i * 0.001 + 0.0005, TL_SPAN_MEMCPY, ++f.corr);
		s.copy = 2;
		FEED(&f, s);
	}
	feed_step(&f, 9.9, 40, 1, 0);
	gpu_feed_done(&f);
	k = kernel(&f, "memcpy DtoH");
	assert_int_equal(k->n, MANY);
	assert_int_equal(k->n_on, MAX_DEVICES + 1);
	for (size_t i = 0; i < k->n_on; i++)
		n += f.v.gpu->kernels_on[k->first_on + i].n;
	assert_int_equal(n, MANY);
	assert_int_equal(f.v.gpu->kernels_on[k->first_on + k->n_on - 1].tgid, 0);
	gpu_feed_free(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gpu_kernels__of_each_device), cmocka_unit_test(test_gpu_kernels__json),
		cmocka_unit_test(test_gpu_kernels__text_says_where_devices_differ),
		cmocka_unit_test(test_gpu_kernels__too_many_devices),
	};

	return cmocka_run_group_tests_name("gpu_kernels", tests, NULL, NULL);
}
