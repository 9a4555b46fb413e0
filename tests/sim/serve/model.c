/* SPDX-License-Identifier: Apache-2.0 */
/* simserve: the kernels of a step and the time each takes, the same for whoever asks. */
#include "serve.h"

const char *const model_names[N_MODEL_NAMES] = {
	"_ZN3sim16embedding_kernelIN3c108BFloat16EEEvPT_PKlPKS3_i",
	"_ZN3sim15rms_norm_kernelIN3c108BFloat16EEEvPT_PKS3_S6_fii",
	"nvjet_tst_128x64_qkv_TNT",
	"_ZN3sim16flash_fwd_kernelI23Flash_fwd_kernel_traitsEEvN5flash16Flash_fwd_paramsE",
	"_ZN3sim24flash_fwd_splitkv_kernelI23Flash_fwd_kernel_traitsEEvN5flash16Flash_fwd_paramsE",
	"nvjet_tst_128x64_o_proj_TNT",
	"_Z40ncclDevKernel_AllReduce_Sum_bf16_RING_LL24ncclDevKernelArgsStorageILm4096EE",
	"nvjet_tst_256x128_gate_up_TNT",
	"_ZN3sim18act_and_mul_kernelIN3c108BFloat16EEEvPT_PKS3_i",
	"nvjet_tst_256x128_down_TNT",
	"nvjet_tst_64x256_lm_head_TNT",
	"_ZN3sim25top_k_top_p_sample_kernelEPfPii",
	"_ZN3sim13argmax_kernelEPKfPii",
};
enum { EMBED, NORM, QKV, FLASH, SPLITKV, O_PROJ, ALLREDUCE, GATE_UP, ACT, DOWN, LM_HEAD, TOP_K, ARGMAX };

static const uint8_t weight[N_MODEL_NAMES] = { 1, 1, 8, 6, 6, 4, 3, 10, 1, 8, 20, 2, 1 };
enum { LAYER_WEIGHT = 1 + 8 + 6 + 4 + 3 + 1 + 10 + 1 + 8 + 3, HEAD_WEIGHT = 1 + 1 + 20 };

const uint32_t model_buckets[MAX_BUCKETS] = { 1, 2, 4, 8, 16, 32, 64, 128, 256 };

uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	return x ^ (x >> 31);
}

uint32_t model_bucket(uint32_t n_decode)
{
	for (uint32_t i = 0; i < MAX_BUCKETS; i++)
		if (n_decode && n_decode <= model_buckets[i])
			return model_buckets[i];
	return 0;
}

/* A graph takes the same time at each launch, else no two kernels are alike. */
static void add(const struct serve_opts *o, const struct plan *p, uint32_t rank, uint32_t name,
		struct kernel *k, uint32_t at)
{
	uint64_t all = (uint64_t)o->layers * LAYER_WEIGHT + HEAD_WEIGHT;
	uint64_t salt = mix(o->seed ^ mix((p->bucket ? p->bucket : p->step << 20) ^ (uint64_t)rank << 56 ^
					  (uint64_t)at << 40));
	uint32_t n = p->bucket ? p->bucket : p->n_decode;
	uint64_t ns = o->step_us * 1000ull * (100 + n) / 100 + (uint64_t)p->n_prefill * o->token_ns;

	ns = ns * weight[name] / all;
	ns = name == ALLREDUCE ? 1000 : ns * (900 + salt % 200) / 1000;
	k[at] = (struct kernel){ .name = name, .blocks = 1 + (n + p->n_prefill) * weight[name],
				 .dur_ns = ns > 500 ? ns : 500, .collective = name == ALLREDUCE };
}

uint32_t model_forward(const struct serve_opts *o, const struct plan *p, uint32_t rank, struct kernel *ret)
{
	uint32_t n = 0;

	add(o, p, rank, EMBED, ret, n++);
	for (uint32_t i = 0; i < o->layers; i++) {
		add(o, p, rank, NORM, ret, n++);
		add(o, p, rank, QKV, ret, n++);
		add(o, p, rank, p->n_prefill ? FLASH : SPLITKV, ret, n++);
		add(o, p, rank, O_PROJ, ret, n++);
		if (o->tp > 1)
			add(o, p, rank, ALLREDUCE, ret, n++);
		add(o, p, rank, NORM, ret, n++);
		add(o, p, rank, GATE_UP, ret, n++);
		add(o, p, rank, ACT, ret, n++);
		add(o, p, rank, DOWN, ret, n++);
		if (o->tp > 1)
			add(o, p, rank, ALLREDUCE, ret, n++);
	}
	add(o, p, rank, NORM, ret, n++);
	add(o, p, rank, LM_HEAD, ret, n++);
	return n;
}

uint32_t model_sample(const struct serve_opts *o, const struct plan *p, uint32_t rank, struct kernel *ret)
{
	for (uint32_t i = 0; i < 2; i++)
		add(o, &(struct plan){ .step = p->step * 2 + i, .n_decode = p->n_out }, rank + MAX_RANKS,
		    i ? ARGMAX : TOP_K, ret + i, 0);
	return 2;
}
