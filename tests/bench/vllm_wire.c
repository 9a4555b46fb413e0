/* SPDX-License-Identifier: Apache-2.0 */
/* What reading vLLM's wire costs: synthetic messages of 0.32, as libzmq sends them, through the parsers. */
#include "parse/vllm_msg.h"
#include "parse/zmtp.h"
#include "../unit/msgpack_out.h"

#include <stdio.h>
#include <time.h>

enum { BATCH = 8192, MAX_BYTES = 256 * 1024 };

static uint64_t cpu_ns(void)
{
	struct timespec ts;	/* of this process: the machine may be busy */

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static void put_frame(struct mp *o, const struct mp *body, bool more)
{
	mp_head(o, (body->len > UINT8_MAX ? 2 : 0) | more, body->len, body->len > UINT8_MAX ? 8 : 1);
	mp_raw(o, body->p, body->len);
}

static void put_outputs(struct mp *o, unsigned n_rows)
{
	static const char stats[] = "{num_running_reqs:64,num_waiting_reqs:2,num_skipped_waiting_reqs:0,"
		"num_kv_fetch_reqs_by_stage:nil,step_counter:0,current_wave:0,kv_cache_usage:0.25,"
		"iteration_details:nil,prefix_cache_stats:{reset:F,requests:0,queries:0,hits:0,"
		"preempted_requests:0,preempted_queries:0,preempted_hits:0,hits_by_source:{}},"
		"connector_prefix_cache_stats:nil,kv_cache_eviction_events:[],spec_decoding_stats:nil,"
		"kv_connector_stats:nil,ec_connector_stats:nil,waiting_lora_adapters:{},"
		"running_lora_adapters:{},cudagraph_stats:nil,perf_stats:nil}";
	char row[200];

	mp_array(o, 9);
	mp_int(o, 0);
	mp_array(o, n_rows);
	for (unsigned i = 0; i < n_rows; i++) {
		snprintf(row, sizeof(row), "[\"chatcmpl-%032x-%08x\",[%u],nil,nil,nil,nil,nil,nil,nil,nil,"
			 "nil,nil,nil,0,nil,nil,nil,nil]", i * 2654435761u, i, 1000 + i);
		mp_text(o, row);
	}
	mp_text(o, stats);
	mp_float(o, 123456.75);
	mp_text(o, "nil");
	mp_text(o, "nil");
	mp_text(o, "nil");
	mp_text(o, "nil");
	mp_text(o, "nil");
}

static uint64_t n_rows, n_tokens, n_messages;

static void on_message(void *ctx, const struct zmtp_message *msg)
{
	const struct zmtp_frame *body;
	struct vllm_outputs o;
	struct vllm_add add;
	struct vllm_row row;

	n_messages++;
	if (!ctx)		/* frames alone */
		return;
	switch (vllm_msg_kind(msg->frames, msg->n, &body)) {
	case VLLM_OUTPUTS:
		if (vllm_msg_outputs(body->data, body->len, &o))
			break;
		for (; vllm_msg_next_row(&o, &row); n_rows++)
			n_tokens += row.n_tokens;
		break;
	case VLLM_ADD:
		if (!vllm_msg_add(body->data, body->len, &add))
			n_tokens += add.n_prompt;
		break;
	default:
		break;
	}
}

static void run(const char *what, const struct mp *message, unsigned burst, bool decode)
{
	static const struct zmtp_fns fns = { on_message, NULL };
	struct zmtp *z = zmtp__new(MAX_BYTES, &fns, decode ? &n_rows : NULL);
	struct mp stream = { 0 };
	uint64_t begin, ns = 0, bytes = 0;

	/* `burst` messages wait to be sent: a call for each 8 KiB of small ones, the rest of a large one whole. */
	for (unsigned i = 0; i < burst; i++)
		mp_raw(&stream, message->p, message->len);
	n_rows = n_tokens = n_messages = 0;
	begin = cpu_ns();
	for (; ns < 500000000; ns = cpu_ns() - begin) {
		for (size_t i = 0, n; i < stream.len; i += n) {
			n = stream.len - i < BATCH ? stream.len - i : BATCH;
			if (message->len > BATCH && i % message->len)
				n = message->len - i % message->len;
			zmtp__feed(z, stream.p + i, n, true);
		}
		bytes += stream.len;
	}
	printf("  %-34s %8.0f ns/message  %6.2f million messages/s  %6.0f MB/s", what,
	       (double)ns / n_messages, n_messages * 1e3 / ns, bytes * 1e3 / ns);
	if (n_rows)
		printf("  %5.0f ns/row", (double)ns / n_rows);
	printf("\n");
	zmtp__free(z);
	mp_free(&stream);
}

int main(void)
{
	static const unsigned sizes[] = { 1, 64, 512 };
	struct mp type = { 0 }, body = { 0 }, message = { 0 };
	char name[64];

	mp_int(&type, 0);
	put_frame(&message, &type, false);
	run("frames of 1 byte", &message, 4096, false);
	message.len = 0;
	for (size_t i = 0; i < 3; i++) {
		body.len = message.len = 0;
		put_outputs(&body, sizes[i]);
		put_frame(&message, &body, false);
		snprintf(name, sizeof(name), "step of %u (%zu bytes), framed", sizes[i], body.len);
		run(name, &message, 8, false);
		snprintf(name, sizeof(name), "step of %u, read", sizes[i]);
		run(name, &message, 8, true);
	}
	body.len = message.len = 0;
	mp_text(&body, "[\"chatcmpl-0123456789abcdef-0a1b2c3d\",#1500,nil,{temperature:0.7,max_tokens:300,"
		"output_kind:1,_all_stop_token_ids:[2]},nil,1764465600.5,nil,nil,nil,nil,nil,0,0,0,nil,F,"
		"\"chatcmpl-0123456789abcdef\",nil,nil,F,nil,nil]");
	put_frame(&message, &type, true);
	put_frame(&message, &body, false);
	run("request of 1500 tokens, read", &message, 8, true);
	mp_free(&type);
	mp_free(&body);
	mp_free(&message);
	return 0;
}
