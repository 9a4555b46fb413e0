/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as people read them: three digits and a unit. Integers only: same text everywhere. */
#include "base/units.h"
#include "base/util.h"

#include <stdio.h>

/* n in the largest unit that leaves a whole digit; each unit is 1000 of the one before. */
static void scaled(char *buf, uint64_t n, const char *const *units, unsigned int n_units)
{
	uint64_t unit = 1;
	unsigned int u = 0;

	if (n < 1000) {
		snprintf(buf, UNITS_LEN, "%u%s", (unsigned int)n, units[0]);
		return;
	}
	/* from 999.5 on, three digits round up to the next unit */
	while (u + 1 < n_units && n / unit >= 1000 - (n % unit >= unit - unit / 2)) {
		unit *= 1000;
		u++;
	}
	for (unsigned int decimals = 2; decimals > 0; decimals--) {
		unsigned int pow = decimals == 2 ? 100 : 10;
		uint64_t step = unit / pow;	/* rounding n to it gives that many decimals */
		uint64_t v = n / step + (n % step >= step - step / 2);

		if (v < 1000) {
			snprintf(buf, UNITS_LEN, "%u.%0*u%s", (unsigned int)(v / pow),
				 (int)decimals, (unsigned int)(v % pow), units[u]);
			return;
		}
	}
	snprintf(buf, UNITS_LEN, "%u%s", (unsigned int)(n / unit + (n % unit >= unit - unit / 2)),
		 units[u]);
}

char *units_ns(char buf[UNITS_LEN], uint64_t ns)
{
	static const char *const units[] = { " ns", " us", " ms", " s" };
	uint64_t s = ns / 1000000000 + (ns % 1000000000 >= 500000000);

	if (s < 100 || ns < 100000000000)
		scaled(buf, ns, units, ARRAY_SIZE(units));
	else if (s < 3600)
		snprintf(buf, UNITS_LEN, "%um%02us", (unsigned int)(s / 60),
			 (unsigned int)(s % 60));
	else
		snprintf(buf, UNITS_LEN, "%uh%02um", (unsigned int)(s / 3600),
			 (unsigned int)(s % 3600 / 60));
	return buf;
}

char *units_bytes(char buf[UNITS_LEN], uint64_t n)
{
	static const char *const units[] = { " B", " kB", " MB", " GB", " TB", " PB", " EB" };

	scaled(buf, n, units, ARRAY_SIZE(units));
	return buf;
}

char *units_count(char buf[UNITS_LEN], uint64_t n)
{
	static const char *const units[] = { "", "k", "M", "G", "T", "P", "E" };

	scaled(buf, n, units, ARRAY_SIZE(units));
	return buf;
}
