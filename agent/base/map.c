/* SPDX-License-Identifier: Apache-2.0 */
/* Hash map: open addressing with linear probing, entries linked by age. */
#include "base/map.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX		/* no slot */
#define EMPTY (UINT32_MAX - 1)	/* in `older`: the slot holds no entry */
#define MIN_SLOTS 16u
#define MAX_ENTRIES (1u << 28)

struct slot {
	uint64_t key;
	uint32_t older, newer;	/* slots; the list of all entries by age */
	uint64_t value[];
};

struct map {
	uint8_t *slots;
	size_t slot_size;
	uint32_t n_slots;	/* a power of two */
	uint32_t len, max;
	uint32_t oldest, newest;
};

static struct slot *slot_at(const struct map *m, uint32_t i)
{
	return (struct slot *)(m->slots + (size_t)i * m->slot_size);
}

static uint32_t index_of(const struct map *m, const void *value)
{
	const uint8_t *slot = (const uint8_t *)value - offsetof(struct slot, value);

	return (uint32_t)((size_t)(slot - m->slots) / m->slot_size);
}

/* Keys are often small numbers or pointers: spread all bits (finaliser of splitmix64). */
static uint32_t home_of(const struct map *m, uint64_t key)
{
	key ^= key >> 30;
	key *= 0xbf58476d1ce4e5b9;
	key ^= key >> 27;
	key *= 0x94d049bb133111eb;
	return (uint32_t)(key >> 32) & (m->n_slots - 1);
}

static uint8_t *new_slots(const struct map *m, uint32_t n)
{
	uint8_t *slots = calloc(n, m->slot_size);

	if (!slots)
		return NULL;
	for (uint32_t i = 0; i < n; i++)
		((struct slot *)(slots + (size_t)i * m->slot_size))->older = EMPTY;
	return slots;
}

struct map *map__new(size_t value_size, size_t max)
{
	struct map *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->slot_size = sizeof(struct slot) + (value_size + 7) / 8 * 8;
	m->n_slots = MIN_SLOTS;
	m->max = max < MAX_ENTRIES ? (uint32_t)max : MAX_ENTRIES;
	m->oldest = m->newest = NONE;
	m->slots = new_slots(m, m->n_slots);
	if (!m->slots) {
		free(m);
		return NULL;
	}
	return m;
}

void map__free(struct map *m)
{
	if (!m)
		return;
	free(m->slots);
	free(m);
}

/* The slot that holds key, or the empty one where it belongs. */
static uint32_t find(const struct map *m, uint64_t key)
{
	uint32_t i = home_of(m, key);

	for (;; i = (i + 1) & (m->n_slots - 1)) {
		const struct slot *s = slot_at(m, i);

		if (s->older == EMPTY || s->key == key)
			return i;
	}
}

static void link_newest(struct map *m, uint32_t i)
{
	struct slot *s = slot_at(m, i);

	s->older = m->newest;
	s->newer = NONE;
	if (m->newest != NONE)
		slot_at(m, m->newest)->newer = i;
	else
		m->oldest = i;
	m->newest = i;
}

static void unlink_slot(struct map *m, uint32_t i)
{
	const struct slot *s = slot_at(m, i);

	if (s->older != NONE)
		slot_at(m, s->older)->newer = s->newer;
	else
		m->oldest = s->newer;
	if (s->newer != NONE)
		slot_at(m, s->newer)->older = s->older;
	else
		m->newest = s->older;
}

static int grow(struct map *m)
{
	struct map old = *m;
	uint8_t *slots = new_slots(m, m->n_slots * 2);

	if (!slots)
		return -1;
	m->slots = slots;
	m->n_slots *= 2;
	m->oldest = m->newest = NONE;
	for (uint32_t i = old.oldest; i != NONE; i = slot_at(&old, i)->newer) {
		const struct slot *from = slot_at(&old, i);
		uint32_t to = find(m, from->key);

		memcpy(slot_at(m, to), from, m->slot_size);
		link_newest(m, to);
	}
	free(old.slots);
	return 0;
}

void *map__get(const struct map *m, uint64_t key)
{
	struct slot *s = slot_at(m, find(m, key));

	return s->older == EMPTY ? NULL : s->value;
}

void *map__put(struct map *m, uint64_t key, bool *ret_new)
{
	uint32_t i = find(m, key);
	struct slot *s = slot_at(m, i);

	if (s->older != EMPTY) {
		if (ret_new)
			*ret_new = false;
		return s->value;
	}
	if (m->len >= m->max)
		return NULL;
	if (m->len + 1 > m->n_slots / 4 * 3) {
		if (grow(m))
			return NULL;
		i = find(m, key);
		s = slot_at(m, i);
	}
	s->key = key;
	memset(s->value, 0, m->slot_size - sizeof(*s));
	link_newest(m, i);
	m->len++;
	if (ret_new)
		*ret_new = true;
	return s->value;
}

/* Moves an entry; those that link to it follow. */
static void move_slot(struct map *m, uint32_t to, uint32_t from)
{
	struct slot *s = slot_at(m, to);

	memcpy(s, slot_at(m, from), m->slot_size);
	if (s->older != NONE)
		slot_at(m, s->older)->newer = to;
	else
		m->oldest = to;
	if (s->newer != NONE)
		slot_at(m, s->newer)->older = to;
	else
		m->newest = to;
}

bool map__del(struct map *m, uint64_t key)
{
	uint32_t mask = m->n_slots - 1;
	uint32_t hole = find(m, key);

	if (slot_at(m, hole)->older == EMPTY)
		return false;
	unlink_slot(m, hole);
	m->len--;
	/* Close the hole with entries behind it that may live there: no tombstones. */
	for (uint32_t i = (hole + 1) & mask; slot_at(m, i)->older != EMPTY; i = (i + 1) & mask) {
		uint32_t home = home_of(m, slot_at(m, i)->key);

		if (((i - home) & mask) < ((i - hole) & mask))
			continue;
		move_slot(m, hole, i);
		hole = i;
	}
	slot_at(m, hole)->older = EMPTY;
	return true;
}

size_t map__len(const struct map *m)
{
	return m->len;
}

bool map__is_full(const struct map *m)
{
	return m->len >= m->max;
}

static void *entry(const struct map *m, uint32_t i, uint64_t *ret_key)
{
	struct slot *s;

	if (i == NONE)
		return NULL;
	s = slot_at(m, i);
	if (ret_key)
		*ret_key = s->key;
	return s->value;
}

void *map__oldest(const struct map *m, uint64_t *ret_key)
{
	return entry(m, m->oldest, ret_key);
}

void *map__newer(const struct map *m, const void *value, uint64_t *ret_key)
{
	return entry(m, slot_at(m, index_of(m, value))->newer, ret_key);
}

void map__touch(struct map *m, void *value)
{
	uint32_t i = index_of(m, value);

	assert(slot_at(m, i)->older != EMPTY);
	if (i == m->newest)
		return;
	unlink_slot(m, i);
	link_newest(m, i);
}

void map__sweep(struct map *m, bool (*drop)(void *ctx, uint64_t key, void *value), void *ctx)
{
	uint64_t key, next_key;
	void *v = map__oldest(m, &key);

	while (v) {
		/* a deletion moves entries, so the next one is found again by its key */
		bool more = map__newer(m, v, &next_key) != NULL;

		if (drop(ctx, key, v))
			map__del(m, key);
		v = more ? map__get(m, next_key) : NULL;
		key = next_key;
	}
}
