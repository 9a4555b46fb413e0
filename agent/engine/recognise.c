/* SPDX-License-Identifier: Apache-2.0 */
/* Rules that tell an engine from what a process shows of itself. */
#include "engine/recognise.h"
const char *const recognise_symbols[] = { "llama_process", "llama_decode", "llama_batch_ext_add_token", "llama_model_load_from_file" };
const size_t n_recognise_symbols = sizeof(recognise_symbols) / sizeof(recognise_symbols[0]);
const char *const recognise_packages[] = { "vllm", "xllamacpp" };
const size_t n_recognise_packages = sizeof(recognise_packages) / sizeof(recognise_packages[0]);
bool recognise(const struct proc_facts *f, struct engine_id *ret)
{
	(void)ret;
	return f->n_symbols > 0;
}
