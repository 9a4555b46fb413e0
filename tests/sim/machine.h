/* SPDX-License-Identifier: Apache-2.0 */
/* What happens to the simulated devices from outside: a file that tests write and the stand-ins have mapped. */
#ifndef TL_SIM_MACHINE_H
#define TL_SIM_MACHINE_H

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * TL_SIM_MACHINE=FILE: numbers of 8 bytes each, host order, zeros to begin with; tests/sim/t_nvml writes them. Without
 * it all devices are well and nobody is on them. libcuda reads `slow_pct` only, NVML the rest.
 */
enum { SIM_MACHINE_DEVICES = 16, SIM_MACHINE_PROCESSES = 16 };
struct sim_machine {
	struct {
		uint64_t slow_pct;	/* what a kernel takes, 100 or 0: as usual */
		uint64_t mhz, max_mhz;	/* 0: 1980 */
		uint64_t why;		/* NVML's reasons for a lower clock */
		uint64_t total_bytes, free_bytes;	/* 0: 80 GB, 40 GB */
		uint64_t mig;
		uint64_t kind;		/* devices of another kind have another name */
		struct {
			uint64_t pid, bytes, sm_pct;
		} processes[SIM_MACHINE_PROCESSES];
	} devices[SIM_MACHINE_DEVICES];
	uint64_t error;		/* what each call of NVML returns, 0: what it should */
	uint64_t delay_ms;	/* how long each takes */
	uint64_t hang;		/* none returns any more */
	uint64_t init_ms;	/* how long nvmlInit takes */
	uint64_t n_calls;	/* made so far, written by NVML */
};

static inline volatile struct sim_machine *sim_machine_open(void)
{
	static struct sim_machine well;
	const char *path = getenv("TL_SIM_MACHINE");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void *at;

	if (fd < 0)
		return &well;
	at = mmap(NULL, sizeof(struct sim_machine), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return at == MAP_FAILED ? &well : at;
}

#endif
