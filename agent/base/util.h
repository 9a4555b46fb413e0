/* SPDX-License-Identifier: Apache-2.0 */
/* What C lacks and every file needs. */
#ifndef TL_UTIL_H
#define TL_UTIL_H

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#endif
