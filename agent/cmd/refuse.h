/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: probes that are to be taken as refused by the kernel. */
#ifndef TL_CMD_REFUSE_H
#define TL_CMD_REFUSE_H

#include <stdint.h>

/* Rows of the probe table that TL_REFUSE names in our environment, as doctor prints them, comma
 * between: bit i is row i. Names that are not there are ignored. */
uint64_t refused_rows(void);

#endif
