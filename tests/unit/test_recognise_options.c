/* SPDX-License-Identifier: Apache-2.0 */
/* What command lines of vLLM say, in all the ways in which vLLM itself takes it. */
#include "unit.h"

#include "engine/recognise.h"

#include <string.h>

struct options_case {
	const char *name;
	const char *args[10];
	uint32_t step_tokens, seqs;
	struct vllm_options want;
};

static const struct options_case cases[] = {
	{ "nothing said", { "vllm", "serve", "m" }, 0, 0, { 0 } },
	{ "two words", { "vllm", "serve", "m", "--max-num-batched-tokens", "512", "--max-num-seqs", "8" },
	  512, 8, { 0 } },
	{ "one word", { "vllm", "serve", "m", "--max-num-batched-tokens=2048", "--max-num-seqs=64" }, 2048,
	  64, { 0 } },
	{ "underscores", { "vllm", "serve", "m", "--max_num_batched_tokens", "512", "--max_num_seqs=8",
			   "--disable_log_stats" }, 512, 8, { .no_stats = true } },
	{ "thousands", { "--max-num-batched-tokens", "8k", "--max-num-seqs", "1K" }, 8000, 1024, { 0 } },
	{ "a decimal", { "--max-num-batched-tokens", "25.6k" }, 25600, 0, { 0 } },
	{ "the last one counts", { "--max-num-seqs", "8", "--max-num-seqs", "9" }, 0, 9, { 0 } },
	{ "no value", { "--max-num-seqs" }, 0, 0, { 0 } },
	{ "no number", { "--max-num-seqs", "many", "--max-num-batched-tokens", "12x" }, 0, 0, { 0 } },
	{ "too large", { "--max-num-seqs", "99999999999", "--max-num-batched-tokens", "9999999g" }, 0, 0,
	  { 0 } },
	{ "negative", { "--max-num-seqs", "-1" }, 0, 0, { 0 } },
	{ "a longer name is another", { "--max-num-seqs-x", "5", "--headless-chicken" }, 0, 0, { 0 } },
	{ "stats off and on again", { "--disable-log-stats", "--no-disable-log-stats" }, 0, 0, { 0 } },
	{ "stats off", { "vllm", "serve", "m", "--disable-log-stats" }, 0, 0, { .no_stats = true } },
	{ "several of everything", { "--api-server-count", "4", "-dp", "8", "--data-parallel-size-local=2",
				     "--config", "v.yaml" }, 0, 0,
	  { .api_servers = 4, .engines = 8, .engines_here = 2, .config_file = true } },
	{ "on a unix socket", { "vllm", "serve", "m", "--uds", "/run/v.sock" }, 0, 0, { .uds = true } },
	{ "encrypted", { "vllm", "serve", "m", "--ssl_keyfile=k.pem", "--ssl-certfile", "c.pem" }, 0, 0, { .tls = true } },
	{ "by priority", { "vllm", "serve", "m", "--scheduling-policy", "priority" }, 0, 0, { .by_priority = true } },
	{ "not by priority", { "--scheduling-policy=priority", "--scheduling_policy=fcfs" }, 0, 0, { 0 } },
	{ "engines only", { "--headless", "--data-parallel-size", "4", "-dpl", "4", "-asc", "0" }, 0, 0,
	  { .headless = true, .engines = 4, .engines_here = 4 } },
	{ "a name is no value of itself", { "_-max-num-seqs", "3", "__headless" }, 0, 0, { 0 } },
};

static void test_options__cases(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct options_case *c = &cases[i];
		struct proc_facts f = { 0 };
		struct vllm_options got;
		size_t len = 1;

		/* Exactly as long as it is, for the sanitizer to see. */
		for (size_t k = 0; k < 10 && c->args[k]; k++)
			len += strlen(c->args[k]) + 1;
		f.cmdline = malloc(len);
		assert_non_null(f.cmdline);
		for (size_t k = 0; k < 10 && c->args[k]; k++) {
			strcpy(f.cmdline + f.cmdline_len, c->args[k]);
			f.cmdline_len += strlen(c->args[k]) + 1;
		}
		f.cmdline[f.cmdline_len] = 0;
		print_message("# %s\n", c->name);
		assert_int_equal(recognise_max_step_tokens(&f), c->step_tokens);
		assert_int_equal(recognise_max_seqs(&f), c->seqs);
		recognise_vllm_options(&f, &got);
		assert_int_equal(got.no_stats, c->want.no_stats);
		assert_int_equal(got.headless, c->want.headless);
		assert_int_equal(got.uds, c->want.uds);
		assert_int_equal(got.tls, c->want.tls);
		assert_int_equal(got.by_priority, c->want.by_priority);
		assert_int_equal(got.config_file, c->want.config_file);
		assert_int_equal(got.api_servers, c->want.api_servers);
		assert_int_equal(got.engines, c->want.engines);
		assert_int_equal(got.engines_here, c->want.engines_here);
		free(f.cmdline);
	}
}

static void test_options__no_command_line(void **state)
{
	struct proc_facts f = { 0 };
	struct vllm_options got;

	(void)state;
	assert_int_equal(recognise_max_seqs(&f), 0);
	recognise_vllm_options(&f, &got);
	assert_false(got.no_stats);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_options__cases),
		cmocka_unit_test(test_options__no_command_line),
	};

	return cmocka_run_group_tests_name("recognise_options", tests, NULL, NULL);
}
