/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated libcupti.so: its API, with one subscriber, callbacks, and its faults. */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cupti.h"
#include "fault.h"

#ifndef SIM_VERSION
#define SIM_VERSION 130001
#endif

enum { DOMAIN_DRIVER = 1, DOMAIN_RUNTIME = 2, DOMAIN_STATE = 6, DOMAIN_MAX = 7, STATE_FATAL = 1 };

struct subscriber {
	cupti_callback_fn fn;
	void *ctx;
	char name[64];
};
struct subscriber_params {	/* CUpti_SubscriberParams */
	size_t bytes;
	const char *name;
	char *holder;
	size_t holder_bytes;
};

static struct subscriber subscriber;
static int subscribed, wants_state;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_hooks hooks;
static const struct sim_driver *driver;
static __thread int in_exit;

uint32_t cupti_version(void)
{
	static uint32_t version;
	const char *v;

	if (!version) {
		v = getenv("TL_SIM_CUPTI_VERSION");
		version = v ? strtoul(v, NULL, 10) : SIM_VERSION;
	}
	return version;
}

struct sim_hooks *cupti_hooks(void)
{
	return &hooks;
}

const struct sim_driver *cupti_driver(void)
{
	return driver;
}

/* One line for each change of what somebody has of us, for tests: process, what, and whether it is on. */
__attribute__((format(printf, 1, 2)))
static void note(const char *format, ...)
{
	const char *path = getenv("TL_SIM_LOG");
	char line[128];
	va_list args;
	int fd, n;

	if (!path)
		return;
	n = snprintf(line, sizeof(line), "%d ", getpid());
	va_start(args, format);
	n += vsnprintf(line + n, sizeof(line) - n, format, args);
	va_end(args);
	fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0)
		return;
	if (write(fd, line, n) != n)
		abort();
	close(fd);
}

static void hang(void)
{
	for (;;)
		pause();
}

/* A call of the driver API begins or ends, on the thread that makes it. */
static void call(struct sim_call *c, int exit)
{
	struct rec_callback d = {
		.site = exit, .function = c->name, .params = c->params, .ret = exit ? c->ret : NULL,
		.context = c->context, .context_id = c->context_id, .data = &c->data, .corr = c->corr,
	};
	cupti_callback_fn fn = subscriber.fn;

	if (!fn)
		return;
	in_exit = exit;
	fn(subscriber.ctx, DOMAIN_DRIVER, c->cbid, &d);
	in_exit = 0;
}

void cupti_fatal(void)
{
	struct { uint32_t result; const char *message; } data = { CUPTI_UNKNOWN, "simulated fatal error" };

	memset(hooks.wanted, 0, sizeof(hooks.wanted));
	hooks.works = 0;
	if (wants_state && subscriber.fn)
		subscriber.fn(subscriber.ctx, DOMAIN_STATE, STATE_FATAL, &data);
}

static void hear_no_call(struct sim_call *c, int exit)
{
	(void)c, (void)exit;
}

static void see_no_work(const struct sim_work *w)
{
	(void)w;
}

/* Finds the simulated libcuda that the process has; NVIDIA's has no such symbol. */
static int bind(void)
{
	int deaf = sim_fault("deaf", NULL);
	sim_bind_fn fn;
	void *lib;

	if (driver)
		return CUPTI_OK;
	fn = (sim_bind_fn)dlsym(RTLD_DEFAULT, SIM_BIND);
	lib = fn ? NULL : dlopen("libcuda.so.1", RTLD_NOW);
	if (lib)
		fn = (sim_bind_fn)dlsym(lib, SIM_BIND);
	if (!fn)
		return CUPTI_UNKNOWN;
	hooks.call = deaf ? hear_no_call : call;
	hooks.work = deaf ? see_no_work : buffers__work;
	driver = fn(&hooks);
	return CUPTI_OK;
}

/* ---- subscribers ---- */
static int subscribe(void **handle, cupti_callback_fn fn, void *ctx, const struct subscriber_params *p)
{
	static int slow_done;
	const char *other = getenv("TL_SIM_HOLDER");
	uint64_t slow_ms = 10000;
	int err;

	if (!handle || !fn)
		return CUPTI_INVALID_PARAMETER;
	if (!slow_done && sim_fault("subscribe_slow", &slow_ms)) {
		slow_done = 1;
		sim_sleep_until(sim_now() + slow_ms * 1000000);
	}
	err = bind();
	if (err)
		return err;
	pthread_mutex_lock(&lock);
	if (subscribed || sim_fault("held", NULL)) {
		if (p && p->holder && p->holder_bytes)
			snprintf(p->holder, p->holder_bytes, "%s", subscribed ? subscriber.name :
				 other ? other : "CUPTI for other-profiler");
		pthread_mutex_unlock(&lock);
		return CUPTI_MULTIPLE_SUBSCRIBERS;
	}
	subscribed = 1;
	subscriber.ctx = ctx;
	subscriber.fn = fn;
	snprintf(subscriber.name, sizeof(subscriber.name), "CUPTI for %s", p && p->name ? p->name : "unknown");
	pthread_mutex_unlock(&lock);
	buffers__new_session();
	note("subscription 1\n");
	*handle = &subscriber;
	return CUPTI_OK;
}

SIM_API int cuptiSubscribe(void **handle, cupti_callback_fn fn, void *ctx)
{
	return subscribe(handle, fn, ctx, NULL);
}

#if SIM_VERSION >= 130000 && !defined(SIM_OLD)
SIM_API int cuptiSubscribe_v2(void **handle, cupti_callback_fn fn, void *ctx, struct subscriber_params *p)
{
	if (p && p->bytes < sizeof(*p))
		return CUPTI_INVALID_PARAMETER;
	return subscribe(handle, fn, ctx, p);
}
#endif

SIM_API int cuptiUnsubscribe(void *handle)
{
	if (handle != &subscriber || !subscribed)
		return CUPTI_INVALID_PARAMETER;
	memset(hooks.wanted, 0, sizeof(hooks.wanted));
	wants_state = 0;
	buffers__end_session();
	pthread_mutex_lock(&lock);
	subscriber.fn = NULL;
	subscribed = 0;
	pthread_mutex_unlock(&lock);
	note("subscription 0\n");
	return CUPTI_OK;
}

SIM_API int cuptiEnableCallback(uint32_t on, void *handle, uint32_t domain, uint32_t cbid)
{
	if (handle != &subscriber || !subscribed || domain >= DOMAIN_MAX)
		return CUPTI_INVALID_PARAMETER;
	if (domain == DOMAIN_DRIVER && cbid < SIM_MAX_CBID)
		hooks.wanted[cbid] = !!on;
	if (domain == DOMAIN_STATE)
		wants_state = !!on;
	note("callback-%u-%u %d\n", domain, cbid, !!on);
	return CUPTI_OK;
}

SIM_API int cuptiEnableDomain(uint32_t on, void *handle, uint32_t domain)
{
	if (handle != &subscriber || !subscribed || domain >= DOMAIN_MAX)
		return CUPTI_INVALID_PARAMETER;
	if (domain == DOMAIN_DRIVER)
		memset(hooks.wanted, !!on, sizeof(hooks.wanted));
	if (domain == DOMAIN_STATE)
		wants_state = !!on;
	return CUPTI_OK;
}

SIM_API int cuptiGetCallbackName(uint32_t domain, uint32_t cbid, const char **name)
{
	if (!name || (domain != DOMAIN_DRIVER && domain != DOMAIN_RUNTIME))
		return CUPTI_INVALID_PARAMETER;
	*name = domain == DOMAIN_DRIVER && cbid == 307 ? "cuLaunchKernel" :
		domain == DOMAIN_DRIVER && cbid == 514 ? "cuGraphLaunch" : "simulated";
	return CUPTI_OK;
}

/* ---- activities ---- */
SIM_API int cuptiActivityRegisterCallbacks(cupti_request_fn request, cupti_complete_fn complete)
{
	return buffers__set_callbacks(request, complete);
}

SIM_API int cuptiActivityEnable(uint32_t kind)
{
	int err = bind();

	err = err ? err : buffers__enable(kind, 1);
	if (!err)
		note("kind-%u 1\n", kind);
	return err;
}

SIM_API int cuptiActivityEnableAndDump(uint32_t kind)
{
	return cuptiActivityEnable(kind);
}

SIM_API int cuptiActivityDisable(uint32_t kind)
{
	note("kind-%u 0\n", kind);
	return buffers__enable(kind, 0);
}

SIM_API int cuptiActivityEnableDriverApi(uint32_t cbid, uint8_t on)
{
	(void)on;
	return cbid < SIM_MAX_CBID ? CUPTI_OK : CUPTI_INVALID_PARAMETER;
}

SIM_API int cuptiActivityEnableRuntimeApi(uint32_t cbid, uint8_t on)
{
	return cuptiActivityEnableDriverApi(cbid, on);
}

SIM_API int cuptiActivityEnableAllSyncRecords(uint8_t on)
{
	(void)on;
	return CUPTI_OK;
}

SIM_API int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid_bytes, uint8_t **record)
{
	uint8_t *next = buffer;
	uint32_t kind;
	size_t size;

	if (!buffer || !record)
		return CUPTI_INVALID_PARAMETER;
	if (*record) {
		memcpy(&kind, *record, sizeof(kind));
		size = rec_size(kind, cupti_version());
		if (!size)
			return CUPTI_INVALID_KIND;
		next = *record + size;
	}
	if (next + sizeof(kind) > buffer + valid_bytes)
		return CUPTI_MAX_LIMIT_REACHED;
	memcpy(&kind, next, sizeof(kind));
	size = rec_size(kind, cupti_version());
	if (!size)
		return CUPTI_INVALID_KIND;
	if (next + size > buffer + valid_bytes)
		return CUPTI_MAX_LIMIT_REACHED;
	*record = next;
	return CUPTI_OK;
}

SIM_API int cuptiActivityFlushAll(uint32_t flag)
{
	if (sim_fault("flush_hang", NULL) || (sim_fault("flush_deadlock", NULL) && !buffers__ever_asked()))
		hang();
	buffers__flush(flag & 1);
	return CUPTI_OK;
}

SIM_API int cuptiActivityFlushPeriod(uint32_t ms)
{
	buffers__flush_period(ms);
	return CUPTI_OK;
}

#ifndef SIM_OLD
SIM_API int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *n)
{
	(void)context;
	(void)stream;
	if (!n)
		return CUPTI_INVALID_PARAMETER;
	*n = buffers__take_dropped();
	return CUPTI_OK;
}

SIM_API int cuptiActivityGetAttribute(uint32_t attribute, size_t *bytes, void *value)
{
	(void)attribute;
	if (!bytes || !value)
		return CUPTI_INVALID_PARAMETER;
	memset(value, 0, *bytes);
	return CUPTI_OK;
}

SIM_API int cuptiActivitySetAttribute(uint32_t attribute, size_t *bytes, void *value)
{
	(void)attribute;
	return bytes && value ? CUPTI_OK : CUPTI_INVALID_PARAMETER;
}

SIM_API int cuptiActivityRegisterTimestampCallback(uint64_t (*clock)(void))
{
	buffers__clock(clock);
	return CUPTI_OK;
}

static uint32_t thread_id_type;

SIM_API int cuptiSetThreadIdType(uint32_t type)
{
	thread_id_type = type;
	return CUPTI_OK;
}

SIM_API int cuptiGetThreadIdType(uint32_t *type)
{
	*type = thread_id_type;
	return CUPTI_OK;
}
#endif

/* ---- the rest ---- */
SIM_API int cuptiGetVersion(uint32_t *version)
{
	if (!version)
		return CUPTI_INVALID_PARAMETER;
	*version = cupti_version();
	return CUPTI_OK;
}

SIM_API int cuptiGetTimestamp(uint64_t *ns)
{
	if (!ns)
		return CUPTI_INVALID_PARAMETER;
	*ns = bind() ? sim_clock(CLOCK_REALTIME) : driver->realtime(sim_now());
	return CUPTI_OK;
}

SIM_API int cuptiGetDeviceId(void *context, uint32_t *id)
{
	if (bind())
		return CUPTI_NOT_INITIALIZED;
	*id = driver->device_id(context);
	return CUPTI_OK;
}

SIM_API int cuptiGetContextId(void *context, uint32_t *id)
{
	if (bind())
		return CUPTI_NOT_INITIALIZED;
	*id = driver->context_id(context);
	return CUPTI_OK;
}

SIM_API int cuptiGetStreamIdEx(void *context, void *stream, uint8_t per_thread, uint32_t *id)
{
	(void)context;
	(void)per_thread;
	if (bind())
		return CUPTI_NOT_INITIALIZED;
	*id = driver->stream_id(stream);
	return CUPTI_OK;
}

SIM_API int cuptiGetGraphId(void *graph, uint32_t *id)
{
	if (bind() || !graph)
		return CUPTI_NOT_INITIALIZED;
	*id = driver->graph_id(graph);
	return CUPTI_OK;
}

SIM_API int cuptiGetGraphExecId(void *exec, uint32_t *id)
{
	return cuptiGetGraphId(exec, id);
}

SIM_API int cuptiActivityPushExternalCorrelationId(uint32_t kind, uint64_t id)
{
	(void)kind;
	(void)id;
	return CUPTI_OK;
}

SIM_API int cuptiActivityPopExternalCorrelationId(uint32_t kind, uint64_t *id)
{
	(void)kind;
	(void)id;
	return CUPTI_QUEUE_EMPTY;
}

#if SIM_VERSION >= 26 && !defined(SIM_OLD)
SIM_API int cuptiActivityEnableCudaEventDeviceTimestamps(uint8_t enable)	/* PyTorch is linked with it */
{
	(void)enable;
	return CUPTI_OK;
}
#endif

SIM_API int cuptiGetResultString(int result, const char **text)
{
	if (!text)
		return CUPTI_INVALID_PARAMETER;
	*text = result == CUPTI_OK ? "CUPTI_SUCCESS" :
		result == CUPTI_MULTIPLE_SUBSCRIBERS ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" :
		"CUPTI_ERROR_SIMULATED";
	return CUPTI_OK;
}

SIM_API int cuptiFinalize(void)
{
	if (!in_exit && sim_fault("finalize_crash_outside_exit", NULL))
		abort();
	if (sim_fault("finalize_hang", NULL))
		hang();
	memset(hooks.wanted, 0, sizeof(hooks.wanted));
	buffers__end_session();
	pthread_mutex_lock(&lock);
	subscriber.fn = NULL;
	subscribed = wants_state = 0;
	pthread_mutex_unlock(&lock);
	buffers__stop();
	note("finalized\n");
	return CUPTI_OK;
}
