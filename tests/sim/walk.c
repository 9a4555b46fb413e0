/* SPDX-License-Identifier: Apache-2.0 */
/* walk LIBRARY FILE: the records in kept buffers as this libcupti's own cuptiActivityGetNextRecord finds them. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	void *lib = argc == 3 ? dlopen(argv[1], RTLD_NOW) : NULL;
	int (*next)(uint8_t *, size_t, uint8_t **);
	FILE *f = argc == 3 ? fopen(argv[2], "re") : NULL;
	uint64_t length;
	int err;

	if (!lib || !f) {
		fprintf(stderr, "walk: %s\n", lib ? "cannot open the file" : dlerror());
		return 2;
	}
	next = (int (*)(uint8_t *, size_t, uint8_t **))dlsym(lib, "cuptiActivityGetNextRecord");
	while (next && fread(&length, 8, 1, f) == 1) {
		uint8_t *buffer = malloc(length), *r = NULL;

		if (!buffer || fread(buffer, length, 1, f) != 1)
			return 2;
		printf("buffer %lu\n", length);
		while (!(err = next(buffer, length, &r)))
			printf("%lu %u\n", (unsigned long)(r - buffer), *(uint32_t *)r);
		printf("end %d\n", err);
		free(buffer);
	}
	return next ? 0 : 2;
}
