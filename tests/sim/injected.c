/* SPDX-License-Identifier: Apache-2.0 */
/* A library for CUDA_INJECTION64_PATH that leaves a mark in the environment: it was called, once. */
#include <stdlib.h>

__attribute__((visibility("default"))) int InitializeInjection(void);

int InitializeInjection(void)
{
	return setenv("TL_SIM_INJECTED", "1", 0);
}
