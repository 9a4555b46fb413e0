/* SPDX-License-Identifier: Apache-2.0 */
/* What can make a token late, and who can be the cause: names that stay (doc/mechanisms.md). */
#ifndef TL_MODEL_MECHANISM_H
#define TL_MODEL_MECHANISM_H

#include <stdint.h>

enum mechanism {		/* the order is that of tables; what is told outside are names */
	/* what a token takes when nobody disturbs */
	MECH_OWN_DECODE,	/* the step of this batch size and context, undisturbed */
	MECH_OWN_PREFILL,	/* its own prompt */
	MECH_OWN_FRONT,		/* its own parsing, template, tokenizing */
	MECH_OWN_DELIVERY,	/* detokenizing and writing, as they usually take */
	/* the scheduler's doing */
	MECH_PREFILL,		/* another request's prefill in the same step */
	MECH_RECOMPUTE,		/* another's (or its own) prefill again after a preemption */
	MECH_PREEMPTED,		/* parked: lost its place in the KV cache */
	MECH_QUEUE,		/* behind others: no slot, no room, no turn */
	MECH_STEP_WAIT,		/* a step was under way when it came */
	MECH_PAUSED,		/* somebody told the server to compute nothing */
	MECH_LEFT_OUT,		/* steps ran without it between its tokens */
	/* the engine process */
	MECH_HOST,		/* on a CPU between or inside steps longer than usual */
	MECH_GC, MECH_GIL,
	MECH_COMPILE,		/* first use: JIT, module load, cold caches */
	MECH_GRAMMAR,		/* structured output */
	/* the machine */
	MECH_THROTTLED,		/* CPU quota of a cgroup */
	MECH_RUN_QUEUE,		/* somebody else had the CPU */
	MECH_FEW_CPUS,		/* another thread of the server had it */
	MECH_PAGE_FAULT,	/* waited for the disk */
	MECH_STOPPED,		/* by a signal, a debugger, a freezer */
	/* devices */
	MECH_GRAPH_MISS, MECH_PADDING,
	MECH_COLLECTIVE,	/* waited for a rank that was late */
	MECH_COMMUNICATION,	/* collectives that move data on all ranks alike */
	MECH_NEIGHBOUR,		/* another process on the device */
	MECH_CLOCK,		/* the device ran slower: power, heat */
	MECH_COPY,
	/* behind the engine */
	MECH_EVENT_LOOP,	/* the front end was busy with something else */
	MECH_TOKENIZER,		/* the thread that tokenizes was busy with another's text */
	MECH_METRICS,		/* the front end answered a scrape */
	MECH_DETOKENIZER,	/* outputs wait because it is saturated */
	MECH_APP_BUFFER,	/* held inside the server process: compression, middleware */
	MECH_NAGLE,		/* held by the kernel for an acknowledgement, or corked */
	MECH_SLOW_CLIENT, MECH_PROXY_BUFFER,
	MECH_NETWORK,		/* lost and sent again, congestion */
	MECH_BEFORE_HOST,	/* passed before the first byte came here */
	/* where evidence ends */
	MECH_LOST,		/* events were lost here: no blame */
	MECH_UNEXPLAINED,
	N_MECHANISMS
};
extern const char *const mechanism_names[N_MECHANISMS];		/* "own_decode", in JSON and doc */
extern const char *const mechanism_labels[N_MECHANISMS];	/* "own decode", for people */

/* Would it be there if nobody disturbed? Such time is no blame. */
static inline int mechanism_is_own(enum mechanism m)
{
	return m <= MECH_OWN_DELIVERY;
}

enum culprit_type {
	WHO_NOBODY, WHO_REQUEST, WHO_SEQUENCE /* joined to no request */, WHO_THREAD, WHO_PROCESS,
	WHO_CGROUP, WHO_DEVICE, WHO_RANK, WHO_CLIENT, WHO_NETWORK, N_CULPRIT_TYPES
};
extern const char *const culprit_type_names[N_CULPRIT_TYPES];	/* SEQUENCE is "request", too */
struct culprit {
	uint8_t type;		/* enum culprit_type */
	uint32_t id;		/* REQUEST: index into requests; SEQUENCE: index;
				 * THREAD: tid; PROCESS: pid; DEVICE, RANK:
				 * number; CLIENT: port; CGROUP, NETWORK: 0 */
	char name[32];		/* comm, last part of a cgroup's path, frame; "" if none */
};

/* A part of a gap: so many ns, why, because of whom. */
struct blame_part {
	uint64_t ns;
	uint8_t mechanism;	/* enum mechanism */
	uint8_t prov;		/* enum provenance */
	struct culprit who;
	struct culprit root;	/* what is behind it, if it is another:
				 * recompute <- KV pressure from X */
};

#endif
