/* SPDX-License-Identifier: Apache-2.0 */
/* One behaviour or fault of the simulated libraries per run, as a profiler meets it: behave CASE. */
#include <dlfcn.h>
#include <string.h>

#include "behave.h"

enum { LAUNCH = 307, BUFFER = 64 << 10 };

struct behave_got got;
void *behave_cupti;
void *stream, *handle;
uint64_t dur_ns = 1000;

static void *cuda, *function;

void *behave_sym(const char *name)
{
	void *fn = dlsym(strncmp(name, "cupti", 5) ? cuda : behave_cupti, name);

	if (!fn)
		printf("# no %s\n", name);
	return fn;
}

static void request(uint8_t **buffer, size_t *bytes, size_t *max_records)
{
	got.requester = pthread_self();
	__atomic_fetch_add(&got.n_requests, 1, __ATOMIC_RELAXED);
	*buffer = got.refuse ? NULL : malloc(BUFFER);
	*bytes = got.refuse ? 0 : BUFFER;
	*max_records = 0;
}

static void complete(void *context, uint32_t of_stream, uint8_t *buffer, size_t bytes, size_t valid)
{
	int (*next)(uint8_t *, size_t, uint8_t **) = behave_sym("cuptiActivityGetNextRecord");
	uint64_t length = valid;
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	uint8_t *r = NULL;

	(void)context;
	(void)of_stream;
	CHECK(valid <= bytes);
	pthread_mutex_lock(&lock);	/* CUPTI's worker calls this, and who flushes */
	got.n_buffers++;
	if (got.keep)
		CHECK(fwrite(&length, 8, 1, got.keep) == 1 && fwrite(buffer, valid, 1, got.keep) == 1);
	while (!next(buffer, valid, &r)) {
		const struct rec_kernel *k = (void *)r;

		got.n[k->kind]++;
		if (k->kind != K_CONCURRENT_KERNEL)
			continue;
		got.n_zero += !k->start;
		got.n_unended += !k->end;
		got.n_backwards += k->start > k->end;
		got.last_corr = k->corr;
		if (!got.first_start)
			got.first_start = k->start;
		got.last_end = k->end;
	}
	pthread_mutex_unlock(&lock);
	free(buffer);
}

void cupti_callback(void *ctx, uint32_t domain, uint32_t cbid, const void *data)
{
	const struct rec_callback *c = data;

	if (domain == 6) {
		got.n_state += cbid == 1 && *(const int *)data == CUPTI_UNKNOWN;
		return;
	}
	CHECK(ctx == &got && domain == 1 && cbid == LAUNCH);
	got.n_calls++;
	got.call_corr = c->corr;
	if (!c->site)
		*c->data = c->corr;
	else
		CHECK(*c->data == c->corr && c->ret && !*(int *)c->ret);
	if (c->site && got.finalize)
		got.finalize = CALL(cuptiFinalize, (void));
}

void start_cuda(void)
{
	void *context, *module;

	CHECK(!CALL(cuInit, (unsigned), 0));
	CHECK(!CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, 0));
	CHECK(!CALL(cuCtxSetCurrent, (void *), context));
	CHECK(!CALL(cuStreamCreate, (void **, unsigned), &stream, 1));
	CHECK(!CALL(cuModuleLoadData, (void **, const void *), &module, ""));
	CHECK(!CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "gemm"));
}

void launch(void)
{
	void *args[] = { &dur_ns, NULL };

	CHECK(!CALL(cuLaunchKernel, (void *, int, int, int, int, int, int, int, void *, void **, void **),
		    function, 1, 1, 1, 32, 1, 1, 0, stream, args, NULL));
}

void launches(int n)
{
	while (n--)
		launch();
}

void finish(void)
{
	CHECK(!CALL(cuStreamSynchronize, (void *), stream));
}

int subscribe(void)
{
	return CALL(cuptiSubscribe, (void **, cupti_callback_fn, void *), &handle, cupti_callback, &got);
}

void enable(uint32_t kind)
{
	CHECK(!CALL(cuptiActivityRegisterCallbacks, (cupti_request_fn, cupti_complete_fn), request, complete));
	CHECK(!CALL(cuptiActivityEnable, (uint32_t), kind));
}

void flush(int forced)
{
	CHECK(!CALL(cuptiActivityFlushAll, (uint32_t), forced));
}

void on(uint32_t kind)
{
	start_cuda();
	CHECK(!subscribe());
	enable(kind);
}

void listen_to_launches(void)
{
	CHECK(!CALL(cuptiEnableCallback, (uint32_t, void *, uint32_t, uint32_t), 1, handle, 1, LAUNCH));
}

/* Five kernels as a graph. */
void *make_graph(void)
{
	void *graph, *exec;

	CHECK(!CALL(cuStreamBeginCapture_v2, (void *, int), stream, 0));
	launches(5);
	CHECK(!CALL(cuStreamEndCapture, (void *, void **), stream, &graph));
	CHECK(!CALL(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long), &exec, graph, 0));
	return exec;
}

void launch_graph(void *exec)
{
	CHECK(!CALL(cuGraphLaunch, (void *, void *), exec, stream));
}

int main(int argc, char **argv)
{
	cuda = dlopen("libcuda.so.1", RTLD_NOW);
	behave_cupti = dlopen(getenv("CUPTI") ? getenv("CUPTI") : "libcupti.so.13", RTLD_NOW);
	if (!cuda || !behave_cupti) {
		printf("# %s\n", dlerror());
		return 2;
	}
	for (size_t i = 0; cases[i].name; i++)
		if (argc > 1 && !strcmp(cases[i].name, argv[1])) {
			cases[i].run();
			return 0;
		}
	printf("# no such case\n");
	return 2;
}
