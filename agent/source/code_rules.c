/* SPDX-License-Identifier: Apache-2.0 */
/* What a thread does, told from the libraries, functions and Python files on its stack. */
#include "source/code_rules.h"

#include "base/util.h"
#include <string.h>

/* The first that is part of the name counts. */
static const struct {
	const char *part;
	uint16_t code;
} libraries[] = {
	{ "tokenizers.abi3", TL_CODE_TOKENIZER }, { "tokenizers.cpython", TL_CODE_TOKENIZER },
	{ "tiktoken", TL_CODE_TOKENIZER }, { "_sentencepiece", TL_CODE_TOKENIZER },
	{ "libtokenizers", TL_CODE_TOKENIZER },
	{ "xgrammar", TL_CODE_GRAMMAR }, { "outlines_core", TL_CODE_GRAMMAR },
	{ "llguidance", TL_CODE_GRAMMAR }, { "lm_format_enforcer", TL_CODE_GRAMMAR },
	{ "libre2", TL_CODE_REGEX }, { "_regex.", TL_CODE_REGEX }, { "_pcre", TL_CODE_REGEX },
	{ "libpcre", TL_CODE_REGEX },
	{ "orjson", TL_CODE_JSON }, { "ujson", TL_CODE_JSON }, { "msgspec", TL_CODE_JSON },
	{ "_json.", TL_CODE_JSON }, { "pydantic_core", TL_CODE_JSON }, { "simdjson", TL_CODE_JSON },
	{ "libtriton", TL_CODE_COMPILE }, { "libnvrtc", TL_CODE_COMPILE },
	{ "libnvJitLink", TL_CODE_COMPILE }, { "libLLVM", TL_CODE_COMPILE },
	{ "ptxjit", TL_CODE_COMPILE },
	{ "libcuda.so", TL_CODE_LAUNCH }, { "libcudart", TL_CODE_LAUNCH },
	{ "libggml", CODE_USUAL }, { "libtorch", CODE_USUAL }, { "libc10", CODE_USUAL },
	{ "libmkl", CODE_USUAL }, { "libdnnl", CODE_USUAL }, { "libgomp", CODE_USUAL },
	{ "libiomp", CODE_USUAL }, { "libomp", CODE_USUAL }, { "libopenblas", CODE_USUAL },
	{ "/_C.", CODE_USUAL }, { "flash_attn", CODE_USUAL },
};

const struct code_symbol code_symbols[] = {
	/* CPython: most are static, and there unless it was stripped */
	{ "gc_collect*", TL_CODE_GC }, { "visit_decref*", TL_CODE_GC },
	{ "visit_reachable*", TL_CODE_GC }, { "subtract_refs*", TL_CODE_GC },
	{ "move_unreachable*", TL_CODE_GC }, { "deduce_unreachable*", TL_CODE_GC },
	{ "untrack_tuples*", TL_CODE_GC }, { "delete_garbage*", TL_CODE_GC },
	{ "_PyGC_Collect*", TL_CODE_GC }, { "PyGC_Collect", TL_CODE_GC },
	{ "_Py_RunGC", TL_CODE_GC },
	{ "sre_ucs1_*", TL_CODE_REGEX }, { "sre_ucs2_*", TL_CODE_REGEX },
	{ "sre_ucs4_*", TL_CODE_REGEX }, { "sre_search*", TL_CODE_REGEX },
	{ "sre_match*", TL_CODE_REGEX }, { "pattern_subx*", TL_CODE_REGEX },
	/* llama.cpp */
	{ "llama_grammar_*", TL_CODE_GRAMMAR }, { "_ZL*llama_grammar_*", TL_CODE_GRAMMAR },
	{ "_Z*llama_grammar_*", TL_CODE_GRAMMAR },
	{ "llama_tokenize*", TL_CODE_TOKENIZER }, { "_ZN*llm_tokenizer*", TL_CODE_TOKENIZER },
	{ "_ZN*llama_vocab*tokenize*", TL_CODE_TOKENIZER },
	{ "_Z*unicode_regex_split*", TL_CODE_TOKENIZER },
	{ "_ZN*minja*", TL_CODE_TEMPLATE }, { "_ZN*jinja*", TL_CODE_TEMPLATE },
	{ "_ZN*nlohmann*", TL_CODE_JSON }, { "_ZNK*nlohmann*", TL_CODE_JSON },
	{ "ggml_*", CODE_USUAL }, { "llama_decode*", CODE_USUAL }, { "llama_process*", CODE_USUAL },
};
const size_t n_code_symbols = ARRAY_SIZE(code_symbols);

static const struct {
	const char *file;	/* part of its path */
	const char *function;	/* NULL: any */
	uint16_t code;
} pythons[] = {
	{ "prometheus_client/", NULL, TL_CODE_METRICS }, { "/metrics/", "scrape", TL_CODE_METRICS },
	{ "torch/_inductor/", NULL, TL_CODE_COMPILE }, { "torch/_dynamo/", NULL, TL_CODE_COMPILE },
	{ "torch/fx/", NULL, TL_CODE_COMPILE }, { "torch/_functorch/", NULL, TL_CODE_COMPILE },
	{ "triton/compiler/", NULL, TL_CODE_COMPILE },
	{ "triton/runtime/jit", NULL, TL_CODE_COMPILE },
	{ "flashinfer/jit", NULL, TL_CODE_COMPILE }, { "frozen importlib", NULL, TL_CODE_COMPILE },
	{ "xgrammar/", NULL, TL_CODE_GRAMMAR }, { "outlines", NULL, TL_CODE_GRAMMAR },
	{ "llguidance/", NULL, TL_CODE_GRAMMAR }, { "structured_output/", NULL, TL_CODE_GRAMMAR },
	{ "jinja2/", NULL, TL_CODE_TEMPLATE }, { "chat_template", NULL, TL_CODE_TEMPLATE },
	{ "detokenizer", NULL, TL_CODE_DETOKENIZER }, { "", "decode_stream", TL_CODE_DETOKENIZER },
	{ "transformers/", "convert_ids_to_tokens", TL_CODE_DETOKENIZER },
	{ "tokeniz", NULL, TL_CODE_TOKENIZER }, { "", "encode_batch", TL_CODE_TOKENIZER },
	{ "/json/", NULL, TL_CODE_JSON }, { "pydantic/", NULL, TL_CODE_JSON },
	{ "/re/", NULL, TL_CODE_REGEX }, { "/re.py", NULL, TL_CODE_REGEX },
	{ "regex/", NULL, TL_CODE_REGEX },
};

int code_of_library(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(libraries); i++)
		if (strstr(name, libraries[i].part))
			return libraries[i].code;
	return -1;
}

/* '*' stands for anything; the rest of the pattern is there in its order. */
static bool fits(const char *pattern, const char *name)
{
	size_t len;

	while (*pattern && *pattern != '*')
		if (*pattern++ != *name++)
			return false;
	for (; *pattern == '*'; pattern += len) {
		pattern++;
		len = strcspn(pattern, "*");
		if (!*pattern)
			return true;
		name = memmem(name, strlen(name), pattern, len);
		if (!name)
			return false;
		name += len;
	}
	return !*name;
}

int code_of_symbol(const char *name)
{
	for (size_t i = 0; i < n_code_symbols; i++)
		if (fits(code_symbols[i].pattern, name))
			return code_symbols[i].code;
	return -1;
}

/* Not those in a folder of such a name: Python's packages have hundreds of thousands. */
bool code_has_symbols(const char *path)
{
	static const char *const parts[] = { "libpython3", "llama", "mtmd" };
	const char *name = strrchr(path, '/');

	name = name ? name + 1 : path;
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		if (strstr(name, parts[i]))
			return true;
	return !strncmp(name, "python3", 7);
}

int code_of_python(const char *file, const char *function)
{
	for (size_t i = 0; i < ARRAY_SIZE(pythons); i++)
		if (strstr(file, pythons[i].file) &&
		    (!pythons[i].function || !strcmp(function, pythons[i].function)))
			return pythons[i].code;
	return -1;
}
