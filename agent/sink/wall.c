/* SPDX-License-Identifier: Apache-2.0 */
/* Wall-clock times: the pair of clocks that the recording holds, in the reader's time zone. */
#include "sink/wall.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

uint64_t wall_ns(const struct model_view *v, uint64_t ns)
{
	if (!v->host || !v->host->realtime_ns)
		return 0;
	return v->host->realtime_ns + ns - v->host->hdr.ts_ns; /* also before it: modulo 2^64 */
}

const char *wall_text(const struct model_view *v, uint64_t ns, char buf[WALL_LEN])
{
	uint64_t at = wall_ns(v, ns);
	time_t s = (time_t)(at / 1000000000);
	char date[32], zone[16], utc[24];
	struct tm here, there;

	buf[0] = '\0';
	if (!at || !localtime_r(&s, &here) || !gmtime_r(&s, &there))
		return buf;
	strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S", &here);
	strftime(zone, sizeof(zone), "%z", &here);
	strftime(utc, sizeof(utc), here.tm_mday == there.tm_mday ? "%H:%M:%S" : "%m-%d %H:%M:%S",
		 &there);
	snprintf(buf, WALL_LEN, "%s.%03u %s", date, (unsigned int)(at % 1000000000 / 1000000),
		 zone);
	if (here.tm_gmtoff)
		snprintf(buf + strlen(buf), WALL_LEN - strlen(buf), " (%s UTC)", utc);
	return buf;
}
