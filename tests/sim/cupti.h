/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the simulated libcupti: buffers of records, and who is subscribed. */
#ifndef TL_SIM_CUPTI_H
#define TL_SIM_CUPTI_H

#include "records.h"
#include "sim.h"

enum {				/* CUptiResult, those that the simulation gives */
	CUPTI_OK = 0, CUPTI_INVALID_PARAMETER = 1, CUPTI_INVALID_OPERATION = 7, CUPTI_MAX_LIMIT_REACHED = 12,
	CUPTI_NOT_COMPATIBLE = 14, CUPTI_NOT_INITIALIZED = 15, CUPTI_QUEUE_EMPTY = 18, CUPTI_INVALID_KIND = 21,
	CUPTI_MULTIPLE_SUBSCRIBERS = 39, CUPTI_UNKNOWN = 999,
};

typedef void (*cupti_request_fn)(uint8_t **buffer, size_t *bytes, size_t *max_records);
typedef void (*cupti_complete_fn)(void *context, uint32_t stream, uint8_t *buffer, size_t bytes,
				  size_t valid_bytes);
typedef void (*cupti_callback_fn)(void *ctx, uint32_t domain, uint32_t cbid, const void *data);

uint32_t cupti_version(void);
const struct sim_driver *cupti_driver(void);	/* NULL: no libcuda.so.1 of the simulation */
struct sim_hooks *cupti_hooks(void);

/* ---- buffers.c ---- */
int buffers__set_callbacks(cupti_request_fn request, cupti_complete_fn complete);
int buffers__enable(uint32_t kind, int on);
void buffers__new_session(void);	/* somebody subscribed */
void buffers__end_session(void);
void buffers__flush(int forced);
void buffers__flush_period(uint32_t ms);
uint64_t buffers__take_dropped(void);
int buffers__ever_asked(void);
void buffers__work(const struct sim_work *w);
void buffers__clock(uint64_t (*clock)(void));	/* instead of CLOCK_REALTIME */
void buffers__stop(void);	/* all kinds off, no worker; what is left is given back */

/* CUPTI gave up by itself; tells a subscriber who asked. */
void cupti_fatal(void);

#endif
