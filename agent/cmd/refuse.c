/* SPDX-License-Identifier: Apache-2.0 */
/* What a capture does without some of its probes is tested on kernels that have them all. */
#include "cmd/refuse.h"

#include "source/probes.h"

#include <stdlib.h>
#include <string.h>

uint64_t refused_rows(void)
{
	const char *at = getenv("TL_REFUSE");
	uint64_t rows = 0;

	while (at && *at) {
		size_t len = strcspn(at, ",");

		for (size_t i = 0; i < n_probes; i++)
			if (strlen(probes[i].name) == len && !strncmp(probes[i].name, at, len))
				rows |= 1ull << i;
		at += len;
		at += *at == ',';
	}
	return rows;
}
