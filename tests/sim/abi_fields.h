/* SPDX-License-Identifier: Apache-2.0 */
/* Compares layouts with NVIDIA's: what the simulation (abi.c) and the library in a target (target_abi.c) both
 * have of a record is listed here once. */
#ifndef TL_SIM_ABI_FIELDS_H
#define TL_SIM_ABI_FIELDS_H

#include <stddef.h>

#define SAME(theirs, field, ours, name) \
	_Static_assert(offsetof(theirs, field) == offsetof(struct ours, name) && \
		       sizeof(((theirs *)0)->field) == sizeof(((struct ours *)0)->name), #theirs "." #field)
#define NUMBER(theirs, ours) _Static_assert((int)(theirs) == (int)(ours), #theirs)

/* `graph`: the struct of ours that has what belongs to a graph, and the names of these. */
#define KERNEL_FIELDS(theirs, ours, graph, node_, graph_) \
	SAME(theirs, kind, ours, kind); \
	SAME(theirs, start, ours, start); \
	SAME(theirs, end, ours, end); \
	SAME(theirs, completed, ours, completed); \
	SAME(theirs, deviceId, ours, device); \
	SAME(theirs, contextId, ours, context); \
	SAME(theirs, streamId, ours, stream); \
	SAME(theirs, correlationId, ours, corr); \
	SAME(theirs, gridId, ours, grid_id); \
	SAME(theirs, name, ours, name); \
	SAME(theirs, graphNodeId, graph, node_); \
	SAME(theirs, graphId, graph, graph_)
#define COPY_FIELDS(theirs, ours) \
	SAME(theirs, kind, ours, kind); \
	SAME(theirs, bytes, ours, bytes); \
	SAME(theirs, start, ours, start); \
	SAME(theirs, end, ours, end); \
	SAME(theirs, deviceId, ours, device); \
	SAME(theirs, contextId, ours, context); \
	SAME(theirs, streamId, ours, stream); \
	SAME(theirs, correlationId, ours, corr)
#define GRAPH_FIELDS(theirs, ours) \
	SAME(theirs, kind, ours, kind); \
	SAME(theirs, correlationId, ours, corr); \
	SAME(theirs, start, ours, start); \
	SAME(theirs, end, ours, end); \
	SAME(theirs, deviceId, ours, device); \
	SAME(theirs, graphId, ours, graph); \
	SAME(theirs, contextId, ours, context); \
	SAME(theirs, streamId, ours, stream)
#define OVERHEAD_FIELDS(theirs, ours, what) \
	SAME(theirs, kind, ours, kind); \
	SAME(theirs, overheadKind, ours, what); \
	SAME(theirs, objectKind, ours, object_kind); \
	SAME(theirs, start, ours, start); \
	SAME(theirs, end, ours, end)
#define CALLBACK_FIELDS(ours, result) \
	SAME(CUpti_CallbackData, callbackSite, ours, site); \
	SAME(CUpti_CallbackData, functionName, ours, function); \
	SAME(CUpti_CallbackData, functionParams, ours, params); \
	SAME(CUpti_CallbackData, functionReturnValue, ours, result); \
	SAME(CUpti_CallbackData, context, ours, context); \
	SAME(CUpti_CallbackData, correlationData, ours, data); \
	SAME(CUpti_CallbackData, correlationId, ours, corr)

#endif
