/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel names by address and by text. An address is a hint only: a module that is unloaded gives
 * its memory to the next one, so the text there is compared, once in each turn. */
#include <string.h>

#include "names.h"

void names__reset(struct names *n)
{
	if (!n->n)
		return;
	memset(n->by_ptr, 0, sizeof(n->by_ptr));
	memset(n->by_text, 0, sizeof(n->by_text));
	n->n = 0;
}

void names__new_turn(struct names *n)
{
	n->turn++;
}

static bool same(const char *kept, const char *name)
{
	return !strncmp(kept, name, NAME_BYTES - 1);
}

static uint32_t hash_text(const char *s)
{
	uint64_t h = 0xcbf29ce484222325ull;

	for (int i = 0; i < NAME_BYTES - 1 && s[i]; i++)
		h = (h ^ (unsigned char)s[i]) * 0x100000001b3ull;
	return h >> 32;
}

static struct name_slot *slot_of_ptr(struct names *n, const char *name)
{
	uint32_t at = ((uintptr_t)name * 0x9e3779b97f4a7c15ull) >> 40;

	for (int i = 0; i < 8; i++) {
		struct name_slot *s = &n->by_ptr[(at + i) % NAME_SLOTS];

		if (!s->id || s->ptr == name)
			return s;
	}
	return &n->by_ptr[at % NAME_SLOTS];	/* a cache: the older one is forgotten */
}

uint32_t names__id(struct names *n, const char *name, bool *ret_new)
{
	struct name_slot *s = slot_of_ptr(n, name);
	uint32_t at;

	*ret_new = false;
	if (s->id && s->ptr == name && (s->turn == n->turn || same(n->text[s->id], name))) {
		s->turn = n->turn;
		return s->id;
	}
	for (at = hash_text(name) % NAME_SLOTS; n->by_text[at]; at = (at + 1) % NAME_SLOTS)
		if (same(n->text[n->by_text[at]], name)) {
			*s = (struct name_slot){ name, n->by_text[at], n->turn };
			return s->id;
		}
	if (n->n == MAX_NAMES)
		return 0;
	n->n++;
	strncpy(n->text[n->n], name, NAME_BYTES - 1);
	n->text[n->n][NAME_BYTES - 1] = 0;
	n->by_text[at] = n->n;
	*s = (struct name_slot){ name, n->n, n->turn };
	*ret_new = true;
	return n->n;
}

void names__forget_last(struct names *n)
{
	for (uint32_t at = 0; at < NAME_SLOTS; at++) {
		if (n->by_ptr[at].id == n->n)
			n->by_ptr[at].id = 0;
		if (n->by_text[at] == n->n)
			n->by_text[at] = 0;
	}
	n->n--;
}
