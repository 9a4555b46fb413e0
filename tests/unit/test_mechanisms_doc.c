/* SPDX-License-Identifier: Apache-2.0 */
/* doc/mechanisms.md has each mechanism once, in order, under its name and label, with all that it promises. */
#include "unit.h"
#include "model/mechanism.h"

#include <errno.h>
#include <string.h>

static char *read_doc(void)
{
	FILE *f = fopen("doc/mechanisms.md", "r");
	char *text = calloc(1, 100000);

	if (!f) /* B may be elsewhere, but tests run in the repository's root */
		print_error("doc/mechanisms.md: %s; run this in the root of the repository\n", strerror(errno));
	assert_non_null(f);
	assert_non_null(text);
	assert_true(fread(text, 1, 99999, f) > 1000);
	fclose(f);
	return text;
}

static void test_doc__has_each_mechanism_once_and_in_order(void **state)
{
	char *text = read_doc(), *at = text;
	int n = 0;

	(void)state;
	for (char *h = strstr(text, "\n### "); h; h = strstr(h + 1, "\n### "))
		n++;
	assert_int_equal(n, N_MECHANISMS);
	for (int m = 0; m < N_MECHANISMS; m++) {
		char heading[120];

		snprintf(heading, sizeof(heading), "\n### `%s`: %s\n", mechanism_names[m],
			 mechanism_labels[m]);
		at = strstr(at, heading);
		if (!at)
			print_error("not there, or not in order: %s\n", heading);
		assert_non_null(at);
	}
	free(text);
}

static void test_doc__says_the_same_things_of_each(void **state)
{
	static const char *const parts[] = {
		"\n- **Means:** ", "\n- **Evidence:** ", "\n- **Confused with:** ", "\n- **Do:** ",
	};
	char *text = read_doc();

	(void)state;
	for (char *h = strstr(text, "\n### "), *next; h; h = next) {
		next = strstr(h + 1, "\n### ");
		for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
			char *part = strstr(h, parts[i]);

			if (!part || (next && part > next))
				print_error("%.40s ... has no %s\n", h, parts[i]);
			assert_true(part && (!next || part < next));
		}
	}
	free(text);
}

/* Labels fit the column that tables give them. */
static void test_mechanisms__have_names_and_labels(void **state)
{
	(void)state;
	for (int m = 0; m < N_MECHANISMS; m++) {
		assert_true(mechanism_names[m] && mechanism_names[m][0]);
		assert_true(mechanism_labels[m] && strlen(mechanism_labels[m]) < 32);
		for (int k = 0; k < m; k++)
			assert_string_not_equal(mechanism_names[m], mechanism_names[k]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_doc__has_each_mechanism_once_and_in_order),
		cmocka_unit_test(test_doc__says_the_same_things_of_each),
		cmocka_unit_test(test_mechanisms__have_names_and_labels),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
