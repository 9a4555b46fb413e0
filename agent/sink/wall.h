/* SPDX-License-Identifier: Apache-2.0 */
/* Wall-clock times of a recording, for people who look for them in a log. */
#ifndef TL_WALL_H
#define TL_WALL_H

#include "model/model.h"

enum { WALL_LEN = 80 };

/* CLOCK_REALTIME in ns at `ns` of the recording; 0: the recording does not say. */
uint64_t wall_ns(const struct model_view *v, uint64_t ns);

/* "2026-11-30 03:41:07.384 +0100 (02:41:07 UTC)"; "" if the recording does not say. Returns buf. */
const char *wall_text(const struct model_view *v, uint64_t ns, char buf[WALL_LEN]);

#endif
