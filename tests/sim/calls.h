/* SPDX-License-Identifier: Apache-2.0 */
/* How the functions of the simulated driver API begin and end. */
#ifndef TL_SIM_CALLS_H
#define TL_SIM_CALLS_H

#include "device.h"

/* A function has its arguments in a struct `params`, ENTERs with its number and name in CUPTI, and
 * leaves by EXIT with its result. */
#define ENTER(number, text)                                                                      \
	int ret_ = 0;                                                                            \
	struct sim_call call_ = { .cbid = (number), .name = (text), .params = &params, .ret = &ret_ }; \
	sim_call__enter(&call_)
#define EXIT(value) return sim_call__exit(&call_, value)

#endif
