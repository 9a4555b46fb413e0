/* SPDX-License-Identifier: Apache-2.0 */
/* Names of kernels, and what they are for. */
#include "unit.h"

#include "model/gpu.h"

#include <string.h>

static const struct name_case { const char *in, *want; } cases[] = {
	{ "argmax_kernel", "argmax_kernel" },
	{ "nvjet_tst_128x64_qkv_TNT", "nvjet_tst_128x64_qkv_TNT" },
	{ "_Z6vecAddPfS_i", "vecAdd" },
	{ "_ZN3sim15rms_norm_kernelIN3c108BFloat16EEEvPT_PKS3_S6_fii", "rms_norm_kernel" },
	{ "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_",
	  "vectorized_elementwise_kernel" },
	{ "_ZN7cutlass7Kernel2I66cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_32x5_tn_align8_relEEvNT_6ParamsE",
	  "Kernel2" },
	{ "_Z40ncclDevKernel_AllReduce_Sum_bf16_RING_LL24ncclDevKernelArgsStorageILm4096EE",
	  "ncclDevKernel_AllReduce_Sum_bf16_RING_LL" },
	{ "_ZN4vllm25paged_attention_v1_kernelIttLi128ELi16ELi128ELNS_18Fp8KVCacheDataTypeE0ELb0EEEvPT_",
	  "paged_attention_v1_kernel" },
	{ "_ZN51_GLOBAL__N__aaaaaaaa_4_x_cu_bbbbbbbb_123451softmax_warp_forwardEv", NULL },	/* only that it ends */
	{ "_ZN12_GLOBAL__N_17my_kernEPf", "my_kern" },
	/* cut in its template, as records of 127 characters are: the function stands before it */
	{ "_ZN2at6native18elementwise_kernelILi128ELi2EZNS0_22gpu_kernel_impl_nocast", "elementwise_kernel" },
	{ "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(at::native::ReduceOp<float>)",
	  "reduce_kernel" },
	{ "triton_poi_fused_add_mul_0", "triton_poi_fused_add_mul_0" },
	{ "_Z", "_Z" }, { "_ZN", "_ZN" }, { "_Z99short", "_Z99short" }, { "", "" }, { "_ZN3fooI", "foo" },
	{ "_ZNK3foo3barILb1EEEv", "bar" }, { "<>", "<>" },
};

static void test_gpu_names__short(void **state)
{
	char buf[64];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		gpu_short_name(cases[i].in, buf, sizeof(buf));
		assert_true(strlen(buf) < sizeof(buf));
		if (cases[i].want)
			assert_string_equal(buf, cases[i].want);
	}
}

/* Cut anywhere, and with each character another one: never beyond its end. */
static void test_gpu_names__damaged(void **state)
{
	static const char odd[] = "EINLSZ0123456789_XJFT<>( ";

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		for (size_t cut = 0; cut <= strlen(cases[i].in); cut++) {
			char *in = strndup(cases[i].in, cut), buf[24];

			assert_non_null(in);
			gpu_short_name(in, buf, sizeof(buf));
			for (size_t k = 0; cut && k < sizeof(odd) - 1; k++) {
				in[cut - 1] = odd[k];
				gpu_short_name(in, buf, sizeof(buf));
				assert_true(strlen(buf) < sizeof(buf));
			}
			free(in);
		}
}

static void test_gpu_names__what_for(void **state)
{
	(void)state;
	assert_true(gpu_is_collective("ncclDevKernel_AllReduce_Sum_bf16_RING_LL"));
	assert_true(gpu_is_collective("cross_device_reduce_1stage"));
	assert_true(gpu_is_collective("all_reduce_one_shot_kernel"));
	assert_false(gpu_is_collective("reduce_kernel"));
	assert_true(gpu_is_sampling("TopKTopPSamplingFromProbKernel"));
	assert_true(gpu_is_sampling("argmax_kernel"));
	assert_false(gpu_is_sampling("flash_fwd_splitkv_kernel"));
	assert_false(gpu_is_sampling("topkGatingSoftmax"));	/* picks experts */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gpu_names__short), cmocka_unit_test(test_gpu_names__damaged),
		cmocka_unit_test(test_gpu_names__what_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
