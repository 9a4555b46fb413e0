/* SPDX-License-Identifier: Apache-2.0 */
/* Loads NVML, lets a thread ask it twice a second, and gives up on it when it
 * does not answer in time. */
#include "source/nvml.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "source/nvml_priv.h"

enum {
	ROUND_MS = 500, CALL_LIMIT_MS = 2000, START_LIMIT_MS = 20000, SLOW_MS = 200, MAX_SLOW = 2,
	CLOSE_MS = 400, MAX_NAMES = 2,
};

static const struct symbol {
	const char *names[MAX_NAMES];	/* the first that is there */
	size_t at;
	bool needed;
} symbols[] = {
#define AT(member) offsetof(struct nvml_api, member)
	{ { "nvmlInit_v2", "nvmlInit" }, AT(init), true },
	{ { "nvmlShutdown" }, AT(shutdown), true },
	{ { "nvmlSystemGetDriverVersion" }, AT(version), false },
	{ { "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount" }, AT(count), true },
	{ { "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex" }, AT(handle), true },
	{ { "nvmlDeviceGetPciInfo_v3" }, AT(pci), false },
	{ { "nvmlDeviceGetUUID" }, AT(uuid), false },
	{ { "nvmlDeviceGetName" }, AT(name), false },
	{ { "nvmlDeviceGetMinorNumber" }, AT(minor), false },
	{ { "nvmlDeviceGetMigMode" }, AT(mig), false },
	{ { "nvmlDeviceGetClockInfo" }, AT(clock), false },
	{ { "nvmlDeviceGetMaxClockInfo" }, AT(max_clock), false },
	{ { "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons" }, AT(why), false },
	{ { "nvmlDeviceGetMemoryInfo" }, AT(memory), false },
	{ { "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2" }, AT(processes), false },
	{ { "nvmlDeviceGetProcessUtilization" }, AT(utilization), false },
#undef AT
};

/* ---- the library ---- */

static bool find(struct nvml *n, const struct symbol *s)
{
	void *fn = NULL;

	for (int k = 0; k < MAX_NAMES && s->names[k] && !fn; k++)
		fn = dlsym(n->lib, s->names[k]);
	memcpy((char *)&n->api + s->at, &fn, sizeof(fn));
	return fn;
}

static int load(struct nvml *n, const char *path, char why[160])
{
	static const struct symbol first_processes = { { "nvmlDeviceGetComputeRunningProcesses" },
						       offsetof(struct nvml_api, processes),
						       false };
	const char *name = path ? path : "libnvidia-ml.so.1";

	n->lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!n->lib) {
		snprintf(why, 160, "there is no NVML here (%s)", name);
		return -ENOENT;
	}
	for (size_t i = 0; i < sizeof(symbols) / sizeof(*symbols); i++) {
		if (!find(n, &symbols[i]) && symbols[i].needed) {
			snprintf(why, 160, "%s has no %s", name, symbols[i].names[0]);
			return -ENOSYS;
		}
	}
	if (!n->api.processes)
		n->old_processes = find(n, &first_processes);
	n->simulated = dlsym(n->lib, "tokenlag_simulated") != NULL;
	return 0;
}

/* ---- calls, and the time they take ---- */

/* How long this thread has waited for a CPU so far: no fault of the driver. */
static uint64_t waited_ns(void)
{
	unsigned long long ran, waited = 0;
	FILE *f = fopen("/proc/thread-self/schedstat", "re");

	if (!f)
		return 0;
	if (fscanf(f, "%llu %llu", &ran, &waited) != 2)
		waited = 0;
	fclose(f);
	return waited;
}

static void stop_locked(struct nvml *n, const char *why)
{
	if (n->state != NVML_STOPPED)
		snprintf(n->why, sizeof(n->why), "%s", why);
	n->state = NVML_STOPPED;
	n->leave = true;
}

void nvml_stop(struct nvml *n, const char *why)
{
	pthread_mutex_lock(&n->lock);
	stop_locked(n, why);
	pthread_mutex_unlock(&n->lock);
}

bool nvml_begin(struct nvml *n, const char *call)
{
	bool may;

	pthread_mutex_lock(&n->lock);
	may = !n->leave;
	if (may) {
		n->call = call;
		n->call_ns = monotonic_ns();
	}
	pthread_mutex_unlock(&n->lock);
	return may;
}

int nvml_end(struct nvml *n, int result)
{
	uint64_t ns, waited = 0;
	char why[160];

	ns = monotonic_ns() - n->call_ns;	/* this thread wrote it */
	if (ns > SLOW_MS * NS_PER_MS)
		waited = waited_ns() - n->waited_ns;
	pthread_mutex_lock(&n->lock);
	n->call_ns = 0;
	n->cost.n_calls++;
	n->cost.calls_ns += ns;
	n->cost.longest_ns = ns > n->cost.longest_ns ? ns : n->cost.longest_ns;
	n->cost.n_failed += result != NVML_FINE && result != NVML_NOT_SUPPORTED &&
			    result != NVML_FOUND_NONE;
	if (n->state == NVML_READY && ns > SLOW_MS * NS_PER_MS + waited &&
	    ++n->cost.n_slow >= MAX_SLOW) {
		snprintf(why, sizeof(why), "two calls of NVML took more than 0.2 s (%s: %.0f ms): it is left alone from now on",
			 n->call, ns / 1e6);
		stop_locked(n, why);
	}
	pthread_mutex_unlock(&n->lock);
	return result;
}

/* ---- the thread ---- */

static void look_round(struct nvml *n, uint64_t watched, bool list_all)
{
	struct nvml_look look;

	n->waited_ns = waited_ns();
	for (uint32_t i = 0; i < n->n_devices; i++) {
		bool deep = watched >> i & 1;
		uint64_t before = n->looks[i].at_ns;

		if ((!deep && !list_all) || n->devices[i].mig)
			continue;
		nvml_look_at(n, i, deep, &look);
		/* what was between looks that lie far apart is not known */
		look.since_ns = before && look.at_ns - before < 4 * ROUND_MS * NS_PER_MS ? before : look.at_ns;
		pthread_mutex_lock(&n->lock);
		if (!n->leave) {
			n->looks[i] = look;
			n->fresh |= 1ull << i;
		}
		pthread_mutex_unlock(&n->lock);
	}
}

static void wait_for_round(struct nvml *n, uint64_t until_ns)
{
	struct timespec t = { until_ns / NS_PER_S, until_ns % NS_PER_S };

	while (!n->leave && !n->list_all && (!n->watched || monotonic_ns() < until_ns)) {
		if (n->watched)
			pthread_cond_timedwait(&n->turn, &n->lock, &t);
		else
			pthread_cond_wait(&n->turn, &n->lock);
	}
}

static void unload(struct nvml *n)
{
	if (n->lib)
		dlclose(n->lib);
	pthread_cond_destroy(&n->turn);
	pthread_mutex_destroy(&n->lock);
	free(n);
}

static void *run(void *ctx)
{
	struct nvml *n = ctx;
	char why[160] = "";
	uint64_t watched, next_ns;
	bool list_all, abandoned, started = !nvml_start(n, why);

	pthread_setname_np(pthread_self(), "tl-nvml");
	pthread_mutex_lock(&n->lock);
	if (started && !n->leave)
		n->state = NVML_READY;
	else
		stop_locked(n, why);
	for (next_ns = monotonic_ns(); !n->leave; next_ns += ROUND_MS * NS_PER_MS) {
		wait_for_round(n, next_ns);
		watched = n->watched;
		list_all = n->list_all;
		n->list_all = false;
		pthread_mutex_unlock(&n->lock);
		if (monotonic_ns() > next_ns + ROUND_MS * NS_PER_MS)
			next_ns = monotonic_ns();
		look_round(n, watched, list_all);
		pthread_mutex_lock(&n->lock);
	}
	/* One that was given up on may never return from this, either. */
	if (started && n->state != NVML_STOPPED) {
		n->call = "nvmlShutdown";
		pthread_mutex_unlock(&n->lock);
		n->api.shutdown();
		pthread_mutex_lock(&n->lock);
	}
	n->ended = true;
	abandoned = n->abandoned;
	pthread_cond_broadcast(&n->turn);
	pthread_mutex_unlock(&n->lock);
	if (abandoned)
		unload(n);
	return NULL;
}

/* ---- life ---- */

static int start_thread(struct nvml *n)
{
	sigset_t all, before;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);	/* signals are for the others */
	err = pthread_create(&n->thread, NULL, run, n);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -err;
}

int nvml__open(const char *path, struct nvml **ret, char why[160])
{
	struct nvml *n = calloc(1, sizeof(*n));
	pthread_condattr_t attr;
	int err;

	*why = 0;
	if (!n)
		return -ENOMEM;
	pthread_mutex_init(&n->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&n->turn, &attr);
	pthread_condattr_destroy(&attr);
	err = load(n, path, why);
	err = err ? err : start_thread(n);
	if (err) {
		unload(n);
		return err;
	}
	*ret = n;
	return 0;
}

void nvml__close(struct nvml *n)
{
	uint64_t until_ns = monotonic_ns() + CLOSE_MS * NS_PER_MS;
	struct timespec t = { until_ns / NS_PER_S, until_ns % NS_PER_S };
	bool ended;

	if (!n)
		return;
	pthread_mutex_lock(&n->lock);
	n->leave = true;
	pthread_cond_broadcast(&n->turn);
	while (!n->ended && pthread_cond_timedwait(&n->turn, &n->lock, &t) != ETIMEDOUT)
		;
	ended = n->ended;
	n->abandoned = !ended;
	if (!ended)	/* it holds n, and frees it if it ever returns */
		pthread_detach(n->thread);
	pthread_mutex_unlock(&n->lock);
	if (!ended)
		return;
	pthread_join(n->thread, NULL);
	unload(n);
}

/* ---- what others see ---- */

enum nvml_state nvml__state(struct nvml *n, uint64_t now_ns, char why[160])
{
	enum nvml_state state;
	uint64_t limit_ms;
	char text[160];

	pthread_mutex_lock(&n->lock);
	limit_ms = n->state == NVML_STARTING ? START_LIMIT_MS : CALL_LIMIT_MS;
	if (n->state != NVML_STOPPED && n->call_ns && now_ns > n->call_ns + limit_ms * NS_PER_MS) {
		snprintf(text, sizeof(text),
			 "%s has not returned for %llu s: NVML is left alone from now on", n->call,
			 (unsigned long long)((now_ns - n->call_ns) / NS_PER_S));
		stop_locked(n, text);
	}
	state = n->state;
	snprintf(why, 160, "%s", n->why);
	pthread_mutex_unlock(&n->lock);
	return state;
}

bool nvml__is_simulated(const struct nvml *n)
{
	return n->simulated;
}

uint32_t nvml__devices(const struct nvml *n, const struct nvml_device **ret)
{
	*ret = n->devices;
	return n->n_devices;
}

const char *nvml__driver(const struct nvml *n)
{
	return n->driver;
}

void nvml__watch(struct nvml *n, uint64_t devices, bool list_all)
{
	pthread_mutex_lock(&n->lock);
	if (list_all || (devices && !n->watched))
		pthread_cond_broadcast(&n->turn);
	n->watched = devices;
	n->list_all |= list_all;
	pthread_mutex_unlock(&n->lock);
}

bool nvml__take(struct nvml *n, struct nvml_look *ret)
{
	bool any;

	pthread_mutex_lock(&n->lock);
	any = n->fresh && n->state == NVML_READY;
	if (any) {
		int i = __builtin_ctzll(n->fresh);

		n->fresh &= n->fresh - 1;
		*ret = n->looks[i];
	}
	pthread_mutex_unlock(&n->lock);
	return any;
}

void nvml__cost(struct nvml *n, struct nvml_cost *ret)
{
	pthread_mutex_lock(&n->lock);
	*ret = n->cost;
	pthread_mutex_unlock(&n->lock);
}
