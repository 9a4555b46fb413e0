/* SPDX-License-Identifier: Apache-2.0 */
/* What a thread does, told from the libraries, functions and Python files on its stack. Pure. */
#ifndef TL_SOURCE_CODE_RULES_H
#define TL_SOURCE_CODE_RULES_H

#include "tl_event.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CODE_USUAL = 0xffff };	/* beside enum tl_code_kind: what engines are there for */

/* By the name of a library's file: an enum tl_code_kind, CODE_USUAL, or -1: it says nothing. */
int code_of_library(const char *name);

/* Functions of which the name tells, by pattern: a '*' at its end stands for anything. */
struct code_symbol {
	const char *pattern;
	uint16_t code;
};
extern const struct code_symbol code_symbols[];
extern const size_t n_code_symbols;
/* Is it a file in whose symbols code_symbols are to be looked for: Python itself, llama.cpp? */
bool code_has_symbols(const char *path);
int code_of_symbol(const char *name);	/* as code_of_library */

/* By a frame of Python: its file and function. As code_of_library. */
int code_of_python(const char *file, const char *function);

#endif
