/* SPDX-License-Identifier: Apache-2.0 */
/* Hash map from a u64 to a fixed-size value: bounded, remembers the order of insertion. */
#ifndef TL_MAP_H
#define TL_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Values lie in the table itself, 8-byte aligned: a pointer to one is valid until the next put of
 * a new key, del or sweep. Keep the key, or keep pointers in the map, where a thing must not move.
 */
struct map;

/* Holds up to max entries of value_size bytes (0: a set). NULL: out of memory. */
struct map *map__new(size_t value_size, size_t max);
void map__free(struct map *m);		/* NULL is fine; values are the caller's */

void *map__get(const struct map *m, uint64_t key);	/* NULL: not there */
/* The value of key, all zeros if it is new. NULL: the map is full or out of memory. */
void *map__put(struct map *m, uint64_t key, bool *ret_new);
bool map__del(struct map *m, uint64_t key);		/* was it there? */

size_t map__len(const struct map *m);
bool map__is_full(const struct map *m);

/* From the oldest to the newest entry; NULL ends. ret_key may be NULL. */
void *map__oldest(const struct map *m, uint64_t *ret_key);
void *map__newer(const struct map *m, const void *value, uint64_t *ret_key);
void map__touch(struct map *m, void *value);	/* makes it the newest: for LRU order */

/* Calls drop for each entry, oldest first, and deletes those for which it returns true. */
void map__sweep(struct map *m, bool (*drop)(void *ctx, uint64_t key, void *value), void *ctx);

#endif
