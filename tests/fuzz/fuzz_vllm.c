/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as each of vLLM's messages, whole and cut: what is handed out lies in the payload, and
 * what a cut message says of a row without marking it is what the whole one says. */
#include "parse/vllm_msg.h"

#include "trace.h"

#include <stdbool.h>

static void need(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "%s\n", what);
	abort();
}

static void check_id(struct vllm_id id, const uint8_t *p, size_t len)
{
	struct vllm_names n;

	if (!id.len)
		return;
	need((const uint8_t *)id.p >= p && id.len <= len - ((const uint8_t *)id.p - p), "id outside");
	vllm_msg_names(id, &n);
	need(n.sequence.len && n.external.len && n.http.len, "an empty name");
	need(n.http.len <= n.external.len && n.external.len <= n.sequence.len && n.sequence.len <= id.len,
	     "names grow");
	need(vllm_msg_id_is_of(id, id), "not of itself");
	need(vllm_msg_id_is_of(id, n.external), "not of its external id");
}

static void read_ids(struct vllm_ids ids, const uint8_t *p, size_t len)
{
	struct vllm_id id;
	size_t n = 0;

	for (; vllm_msg_next_id(&ids, &id); n++)
		check_id(id, p, len);
	need(n <= len, "more ids than bytes");
}

static void read_add(const uint8_t *p, size_t len, size_t cut)
{
	struct vllm_add a, c;
	char *copy;

	if (vllm_msg_add(p, len, &a))
		return;
	check_id(a.id, p, len);
	check_id(a.external, p, len);
	copy = exact_copy(p, cut);
	if (!vllm_msg_add(copy, cut, &c) && !(a.flags & VLLM_SHAPE)) {
		need(c.id.len == a.id.len, "another id");
		need(c.n_prompt == -1 || c.n_prompt == a.n_prompt || a.n_prompt == -1, "another prompt");
		need(!c.arrival_ns || c.arrival_ns == a.arrival_ns, "another arrival");
		need(c.client_index == -1 || c.client_index == a.client_index, "another client");
	}
	free(copy);
}

static size_t read_events(struct vllm_events events)
{
	struct vllm_event ev;
	size_t n = 0;

	for (; vllm_msg_next_event(&events, &ev); n++)
		need(ev.type, "event of no type");
	return n;
}

static void compare_rows(struct vllm_outputs whole, const uint8_t *p, size_t cut)
{
	char *copy = exact_copy(p, cut);
	struct vllm_outputs o;
	struct vllm_row w, c;

	if (!vllm_msg_outputs(copy, cut, &o)) {
		need(o.n_rows == whole.n_rows && o.engine == whole.engine, "another head");
		while (vllm_msg_next_row(&o, &c)) {
			need(vllm_msg_next_row(&whole, &w), "more rows");
			if (c.flags & VLLM_CUT)
				continue;
			need(c.id.len == w.id.len && c.n_tokens == w.n_tokens && c.finish == w.finish &&
			     c.stop == w.stop && c.n_cached == w.n_cached && c.has_prefill == w.has_prefill &&
			     read_events(c.events) == read_events(w.events), "another row");
		}
	}
	free(copy);
}

static void read_outputs(const uint8_t *p, size_t len, size_t cut)
{
	struct vllm_outputs o, all;
	struct vllm_row row;
	size_t n = 0;

	if (vllm_msg_outputs(p, len, &o))
		return;
	all = o;
	for (; vllm_msg_next_row(&o, &row); n++) {
		check_id(row.id, p, len);
		need(read_events(row.events) <= len, "more events than bytes");
		need(row.finish >= -1 && row.n_tokens >= -1 && row.n_cached >= -1, "counts below zero");
	}
	need(n <= len && n <= o.n_rows, "more rows than bytes");
	need(o.flags || n == o.n_rows, "rows are missing");
	read_ids(o.finished, p, len);
	compare_rows(all, p, cut);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *p = data + 1;
	size_t len = size - 1, cut;
	struct zmtp_frame frames[3];
	const struct zmtp_frame *body;
	struct vllm_ids ids;
	uint8_t *copy;

	if (size < 1)
		return 0;
	copy = (uint8_t *)exact_copy(p, len);
	cut = len * data[0] / 256;
	read_add(copy, len, cut);
	read_outputs(copy, len, cut);
	if (!vllm_msg_abort(copy, len, &ids))
		read_ids(ids, copy, len);
	/* The same bytes as one frame, and as several, the last of which is all cut away. */
	frames[0] = (struct zmtp_frame){ copy, len, len, false };
	vllm_msg_kind(frames, 1, &body);
	frames[0] = (struct zmtp_frame){ copy, !!len, !!len, true };
	frames[1] = (struct zmtp_frame){ copy + !!len, cut, cut, true };
	frames[2] = (struct zmtp_frame){ NULL, 0, 7, false };
	vllm_msg_kind(frames, 3, &body);
	free(copy);
	return 0;
}
