/* SPDX-License-Identifier: Apache-2.0 */
/* What the readers of vLLM's messages share. */
#ifndef TL_PARSE_VLLM_PRIV_H
#define TL_PARSE_VLLM_PRIV_H

#include "parse/vllm_msg.h"

bool vllm_read_id(struct mpin *m, struct vllm_id *ret);	/* takes one value: a string, whole */
uint64_t vllm_ns(double seconds);	/* 0: no time */

#endif
