/* SPDX-License-Identifier: Apache-2.0 */
/* Where a probe is cheap, told from the bytes that functions of real builds begin with. */
#include "unit.h"

#include "source/insn_x86_64.h"
#include <string.h>

/* bytes as hex digits; the first `args` arguments are to be intact where the probe stands */
static const struct insn_case {
	const char *name, *code;
	unsigned args;
	int offset;
	bool cheap;
	const char *insn;
} cases[] = {
	/* emulated at the first byte */
	{ "push rbp", "55 48 89 e5", 6, 0, true, "push" },
	{ "push r13", "41 55 41 89 d5", 6, 0, true, "push" },
	{ "jmp rel32", "e9 9b 3a 70 ff", 6, 0, true, "jmp" },
	{ "jmp rel8", "eb 10", 6, 0, true, "jmp" },
	{ "call rel32", "e8 00 00 00 00", 6, 0, true, "call" },
	{ "nop", "90 c3", 6, 0, true, "nop" },
	{ "jcc rel8", "74 0c", 6, 0, true, "jcc" },
	{ "jcc rel32", "0f 84 ad 04 00 00", 6, 0, true, "jcc" },

	/* one or more instructions before it leave everything as it was */
	{ "endbr64, push", "f3 0f 1e fa 55", 6, 4, true, "push" },
	{ "endbr64, push r15", "f3 0f 1e fa 41 57", 6, 4, true, "push" },
	{ "llama_process: test esi,esi; je", "85 f6 74 0c 83 fe 01", 3, 2, true, "jcc" },
	{ "llama_memory_seq_rm: test rdi,rdi; je", "48 85 ff 74 0b 48 8b 07", 4, 3, true, "jcc" },
	{ "set_output_logits: movzbl dl,edx; jmp", "0f b6 d2 e9 e8 fe 6f ff", 3, 3, true, "jmp" },
	{ "widen dil in place", "40 0f b6 ff 55", 1, 4, true, "push" },
	{ "widen di in place", "0f b7 ff 55", 1, 3, true, "push" },
	{ "server_slot::release: mov esi,[rdi+0x1530]; test; je",
	  "8b b7 30 15 00 00 85 f6 0f 84 b3 04 00 00", 1, 8, true, "jcc" },
	{ "xor eax,eax; push", "31 c0 55", 6, 2, true, "push" },
	{ "mov rax,rdi; push", "48 89 f8 53", 6, 3, true, "push" },
	{ "mov r13d,edx; push", "41 89 d5 41 54", 6, 3, true, "push" },
	{ "mov eax,imm32; push", "b8 01 00 00 00 55", 6, 5, true, "push" },
	{ "mov rax,imm64; push", "48 b8 01 02 03 04 05 06 07 08 55", 6, 10, true, "push" },
	{ "cmp byte [rdi+0x10],0; jne", "80 7f 10 00 75 05", 6, 4, true, "jcc" },
	{ "cmp qword [rip+X],0; je", "48 83 3d 11 22 33 00 00 74 05", 6, 8, true, "jcc" },
	{ "cmp dword [rdi+rax*4+8],imm32; push", "81 7c 87 08 01 00 00 00 55", 6, 8, true, "push" },
	{ "cmp [disp32+rax*4],imm8; push", "83 3c 85 00 01 00 00 07 55", 6, 8, true, "push" },
	{ "test byte [rdi],1; je", "f6 07 01 74 02", 6, 3, true, "jcc" },
	{ "test edi,imm32; je", "f7 c7 00 01 00 00 74 02", 6, 6, true, "jcc" },
	{ "test al,imm8; cmp eax,imm32; push", "a8 01 3d 00 00 00 01 55", 6, 7, true, "push" },
	{ "lea rax,[rdi+8]; push", "48 8d 47 08 55", 6, 4, true, "push" },
	{ "long nop, push", "0f 1f 44 00 00 55", 6, 5, true, "push" },
	{ "nopw, push", "66 0f 1f 84 00 00 00 00 00 55", 6, 9, true, "push" },
	{ "cs nopw, push", "66 2e 0f 1f 84 00 00 00 00 00 55", 6, 10, true, "push" },
	{ "xchg ax,ax; push", "66 90 55", 6, 2, true, "push" },
	{ "overwrites only an argument that nobody reads", "89 f2 55", 2, 2, true, "push" },

	/* no cheap place: the first byte, and the truth about it */
	{ "sub rsp moves what a return probe needs", "48 83 ec 08 55", 0, 0, false, "other" },
	{ "mov edi,esi loses argument 1", "89 f7 55", 1, 0, false, "mov" },
	{ "mov edx,esi loses argument 3", "89 f2 55", 3, 0, false, "mov" },
	{ "mov rsi,[rdi] loses argument 2", "48 8b 37 55", 2, 0, false, "mov" },
	{ "lea rsp,[rsp-8]", "48 8d 64 24 f8 55", 0, 0, false, "lea" },
	{ "xor edi,edi loses argument 1", "31 ff 55", 1, 0, false, "xor" },
	{ "mov r8d,imm loses argument 5", "41 b8 01 00 00 00 55", 5, 0, false, "mov" },
	{ "movzbl sil,edx loses argument 3", "40 0f b6 d6 55", 3, 0, false, "movx" },
	{ "movzbl bh,edi is not in place", "0f b6 ff 55", 1, 0, false, "movx" },
	{ "mov [rdi],rsi writes memory", "48 89 37 55", 2, 0, false, "other" },
	{ "or edi,imm is not cmp", "83 cf 01 55", 1, 0, false, "other" },
	{ "not edi is not test", "f7 d7 55", 1, 0, false, "other" },
	{ "push with another prefix", "48 55", 0, 0, false, "other" },
	{ "jmp with an operand prefix", "66 e9 00 00", 0, 0, false, "other" },
	{ "xchg r8,rax is not nop", "49 90 55", 0, 0, false, "other" },
	{ "ret", "c3", 0, 0, false, "other" },
	{ "endbr64, ret", "f3 0f 1e fa c3", 0, 0, false, "endbr64" },
	{ "tail call by pointer", "ff 67 38", 0, 0, false, "other" },
	{ "too many before it", "31 c0 31 c0 31 c0 31 c0 31 c0 31 c0 31 c0 55", 0, 0, false, "xor" },
	{ "six before it", "31 c0 31 c0 31 c0 31 c0 31 c0 31 c0 55", 0, 12, true, "push" },
	{ "nothing", "", 0, 0, false, "other" },
};

static size_t bytes_of(const char *hex, uint8_t *buf, size_t size)
{
	size_t n = 0;
	unsigned v;
	int len;

	while (n < size && sscanf(hex, "%2x%n", &v, &len) == 1) {
		buf[n++] = v;
		hex += len;
	}
	return n;
}

static void test_insn__cases(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct insn_case *c = &cases[i];
		struct probe_place p;
		uint8_t code[32];
		size_t len = bytes_of(c->code, code, sizeof(code));
		uint8_t *exact = malloc(len ? len : 1);	/* so that a read beyond it is found */

		assert_non_null(exact);
		memcpy(exact, code, len);
		insn_x86_64_place(exact, len, c->args, &p);
		free(exact);
		if (p.offset != c->offset || p.cheap != c->cheap || strcmp(p.insn, c->insn))
			fail_msg("%s: +%d %s %s", c->name, p.offset, p.cheap ? "cheap" : "dear", p.insn);
	}
}

/* Code that ends anywhere is never read beyond its end, nor found cheap by what is not there. */
static void test_insn__cut_anywhere(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct probe_place whole, cut;
		uint8_t code[32];
		size_t len = bytes_of(cases[i].code, code, sizeof(code));

		insn_x86_64_place(code, len, cases[i].args, &whole);
		for (size_t n = 0; n < len; n++) {
			uint8_t *exact = malloc(n ? n : 1);

			assert_non_null(exact);
			memcpy(exact, code, n);
			insn_x86_64_place(exact, n, cases[i].args, &cut);
			free(exact);
			if (cut.cheap && (!whole.cheap || cut.offset != whole.offset))
				fail_msg("%s: cut to %zu bytes it is cheap at +%d", cases[i].name, n, cut.offset);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_insn__cases),
		cmocka_unit_test(test_insn__cut_anywhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
