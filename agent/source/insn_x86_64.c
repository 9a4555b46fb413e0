/* SPDX-License-Identifier: Apache-2.0 */
/* A decoder of the few x86-64 instructions that functions begin with. */
#include "source/insn_x86_64.h"

enum { MAX_SKIPPED = 6 };	/* instructions before the probe */

/* Registers as x86 numbers them. */
enum { AX, CX, DX, BX, SP, BP, SI, DI, R8, R9 };
static const uint8_t arg_regs[] = { DI, SI, DX, CX, R8, R9 };

/*
 * An instruction. `emulated`: uprobes of every kernel since 5.15 run it without single-stepping
 * (arch/x86/kernel/uprobes.c: branch_xol_ops and push_xol_ops). Otherwise, if `skippable`, it goes
 * on with the next one and changes no memory; `writes` has bit n if it changes register n.
 */
struct insn {
	uint8_t len;		/* 0: not known to us */
	bool emulated, skippable;
	uint32_t writes;
	const char *name;
};

/* What follows an opcode that has a ModRM byte. */
struct modrm {
	uint8_t len;		/* of ModRM, SIB and displacement; 0: cut off */
	uint8_t mod, reg, rm;	/* with the bits of the REX prefix */
};

static struct modrm modrm_of(const uint8_t *p, size_t len, uint8_t rex)
{
	struct modrm m = { 0 };
	uint8_t n = 1;

	if (!len)
		return m;
	m.mod = p[0] >> 6;
	m.reg = (p[0] >> 3 & 7) | (rex & 4) << 1;
	m.rm = (p[0] & 7) | (rex & 1) << 3;
	if (m.mod != 3 && (p[0] & 7) == 4) {
		if (len < 2)
			return m;
		n++;
		if (!m.mod && (p[1] & 7) == 5)
			n += 4;
	}
	if (m.mod == 1)
		n += 1;
	else if (m.mod == 2 || (!m.mod && (p[0] & 7) == 5))
		n += 4;
	m.len = n <= len ? n : 0;
	return m;
}

static struct insn emulated(size_t have, size_t len, const char *name)
{
	return have < len ? (struct insn){ 0 } : (struct insn){ len, true, true, 0, name };
}

static struct insn skip(size_t have, size_t len, uint32_t writes, const char *name)
{
	return have < len ? (struct insn){ 0 } : (struct insn){ len, false, true, writes, name };
}

/* 0f xx: near jcc, movzx, movsx, long nop. `p` is behind the 0f, `at`
 * bytes into the instruction. */
static struct insn decode_0f(const uint8_t *p, size_t len, size_t at, uint8_t rex)
{
	struct modrm m;
	uint32_t writes;

	if (len < 2)
		return (struct insn){ 0 };
	if (p[0] >= 0x80 && p[0] <= 0x8f)
		return rex ? (struct insn){ 0 } : emulated(len, 5, "jcc");
	m = modrm_of(p + 1, len - 1, rex);
	if (!m.len)
		return (struct insn){ 0 };
	if (p[0] == 0x1f)
		return skip(len + at, at + 1 + m.len, 0, "nop");
	switch (p[0]) {
	case 0xb6: case 0xb7: case 0xbe: case 0xbf:
		/* Widening a register in place leaves what a caller passed in it.
		 * Without a REX prefix, byte registers 4 to 7 are ah to bh: there
		 * "in place" is another register. */
		writes = 1u << m.reg;
		if (m.mod == 3 && m.reg == m.rm && (rex || m.rm < 4 || p[0] & 1))
			writes = 0;
		return skip(len + at, at + 1 + m.len, writes, "movx");
	}
	return (struct insn){ 0 };
}

/* One byte of opcode and a ModRM byte. `at`: bytes up to and with the opcode. */
static struct insn decode_modrm(uint8_t op, const uint8_t *p, size_t len, size_t at, uint8_t rex)
{
	struct modrm m = modrm_of(p, len, rex);
	size_t n = at + m.len, have = at + len;

	if (!m.len)
		return (struct insn){ 0 };
	switch (op) {
	case 0x84: case 0x85:
		return skip(have, n, 0, "test");
	case 0x38: case 0x39: case 0x3a: case 0x3b:
		return skip(have, n, 0, "cmp");
	case 0x80: case 0x83:
		return (m.reg & 7) == 7 ? skip(have, n + 1, 0, "cmp") : (struct insn){ 0 };
	case 0x81:
		return (m.reg & 7) == 7 ? skip(have, n + 4, 0, "cmp") : (struct insn){ 0 };
	case 0xf6:
		return (m.reg & 7) == 0 ? skip(have, n + 1, 0, "test") : (struct insn){ 0 };
	case 0xf7:
		return (m.reg & 7) == 0 ? skip(have, n + 4, 0, "test") : (struct insn){ 0 };
	case 0x31: case 0x89:
		if (m.mod != 3)		/* to memory */
			return (struct insn){ 0 };
		return skip(have, n, 1u << m.rm, op == 0x31 ? "xor" : "mov");
	case 0x33:
		return skip(have, n, 1u << m.reg, "xor");
	case 0x8b: case 0x63:
		return skip(have, n, 1u << m.reg, "mov");
	case 0x8d:
		return skip(have, n, 1u << m.reg, "lea");
	}
	return (struct insn){ 0 };
}

static struct insn decode(const uint8_t *p, size_t len)
{
	size_t at = 0;
	uint8_t rex = 0, op;

	if (len >= 4 && p[0] == 0xf3 && p[1] == 0x0f && p[2] == 0x1e && p[3] == 0xfa)
		return skip(len, 4, 0, "endbr64");
	if (len >= 2 && p[0] == 0x66 && p[1] == 0x90)
		return skip(len, 2, 0, "nop");
	while (at < len && at < 4 && (p[at] == 0x66 || p[at] == 0x2e))
		at++;		/* only long nops are read behind these prefixes */
	if (at) {
		if (at + 2 < len && (p[at] & 0xf0) == 0x40)
			at++;
		return at + 2 < len && p[at] == 0x0f && p[at + 1] == 0x1f ?
			decode_0f(p + at + 1, len - at - 1, at + 1, 0) : (struct insn){ 0 };
	}
	if (len && (p[0] & 0xf0) == 0x40)
		rex = p[at++];
	if (at >= len)
		return (struct insn){ 0 };
	op = p[at++];
	if (op >= 0x50 && op <= 0x57)	/* emulated with no prefix, or with 41 only */
		return rex && rex != 0x41 ? (struct insn){ 0 } : emulated(len, at, "push");
	if (op == 0x0f)
		return decode_0f(p + at, len - at, at, rex);
	if (op >= 0xb8 && op <= 0xbf)
		return skip(len, at + (rex & 8 ? 8 : 4), 1u << ((op & 7) | (rex & 1) << 3), "mov");
	if (op == 0xa8 || op == 0x3c)
		return skip(len, at + 1, 0, op == 0xa8 ? "test" : "cmp");
	if (op == 0xa9 || op == 0x3d)
		return skip(len, at + 4, 0, op == 0xa9 ? "test" : "cmp");
	if (!rex && op == 0x90)
		return emulated(len, 1, "nop");
	if (!rex && op >= 0x70 && op <= 0x7f)
		return emulated(len, 2, "jcc");
	if (!rex && op == 0xeb)
		return emulated(len, 2, "jmp");
	if (!rex && op == 0xe9)
		return emulated(len, 5, "jmp");
	if (!rex && op == 0xe8)
		return emulated(len, 5, "call");
	return decode_modrm(op, p + at, len - at, at, rex);
}

void insn_x86_64_place(const uint8_t *code, size_t len, unsigned n_args, struct probe_place *ret)
{
	uint32_t keep = 1u << SP;
	struct insn i = decode(code, len);
	size_t at = 0;

	*ret = (struct probe_place){ 0, false, i.len ? i.name : "other" };
	for (unsigned n = 0; n < n_args && n < sizeof(arg_regs); n++)
		keep |= 1u << arg_regs[n];
	for (int n = 0; n <= MAX_SKIPPED; n++) {
		i = decode(code + at, len - at);
		if (i.emulated) {
			*ret = (struct probe_place){ at, true, i.name };
			return;
		}
		if (!i.len || !i.skippable || i.writes & keep)
			return;
		at += i.len;
	}
}
