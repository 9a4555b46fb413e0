/* SPDX-License-Identifier: Apache-2.0 */
/* The CUPTI of the target: found, loaded, and its functions by name. */
#ifndef TL_TARGET_CUPTI_H
#define TL_TARGET_CUPTI_H

#include <stdbool.h>

#include "cupti_abi.h"

struct cupti {
	void *lib;		/* NULL: not found; never closed */
	uint32_t version;
	bool simulated;		/* tests/sim */
	bool several;		/* the target has mapped more than one */
	bool own;		/* the target had none: loaded from its toolkit */
	char path[256];

	int (*get_version)(uint32_t *ret);
	int (*get_timestamp)(uint64_t *ret);
	int (*subscribe)(void **ret, cupti_callback_fn fn, void *ctx);
	int (*subscribe_v2)(void **ret, cupti_callback_fn fn, void *ctx,
			    struct cupti_subscriber_params *p);
	int (*unsubscribe)(void *subscriber);
	int (*enable_callback)(uint32_t on, void *subscriber, uint32_t domain, uint32_t cbid);
	int (*register_callbacks)(cupti_request_fn request, cupti_complete_fn complete);
	int (*enable)(uint32_t kind);
	int (*disable)(uint32_t kind);
	int (*next_record)(uint8_t *buf, size_t valid, void **record);
	int (*flush_all)(uint32_t flags);
	int (*n_dropped)(void *context, uint32_t stream, size_t *ret);
	int (*finalize)(void);
};

/* Calls cuDeviceGetCount, CUPTI_TOUCH, in the libcuda that is mapped; loads nothing. 0: CUDA is in
 * use here. */
int cupti__touch_cuda(bool *ret_simulated);

/* Finds and loads it, in c. Returns 0 or -errno with a sentence in why. Calls nothing but
 * cuptiGetVersion. */
int cupti__find(struct cupti *c, char *why, size_t why_size);

#endif
