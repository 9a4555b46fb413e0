/* SPDX-License-Identifier: Apache-2.0 */
/* What a vLLM server of this host lets be seen, told by its processes and flags. */
#ifndef TL_CMD_VLLM_SERVER_H
#define TL_CMD_VLLM_SERVER_H

#include "cmd/doctor.h"
#include "source/discover.h"

struct vllm_server {
	uint32_t server;	/* its first process */
	uint32_t engine;	/* an EngineCore of it, 0: there is none here */
	size_t n_engines, n_api;
	bool uring;		/* an EngineCore of it has an io_uring */
	bool rust;		/* its front end is vllm-rs */
	uint32_t step_tokens;	/* 0: not said */
	struct vllm_options options;
};

/* `server`: as in struct found. False: it is no vLLM, or not among those found. */
bool vllm_server_look(const struct discovery *d, uint32_t server, struct vllm_server *ret);
/* Lines on what is seen and what is lost, "steps" first. Returns 0 or -ENOMEM. */
int vllm_server_checks(const struct vllm_server *s, struct check_list *ret);

/* How the steps of this process of a vLLM are seen, as in struct tl_engine. */
void vllm_step_source(const struct discovery *d, const struct found *f, char *ret, size_t size);

#endif
