/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files that write the report's JSON. */
#ifndef TL_SINK_JSON_PRIV_H
#define TL_SINK_JSON_PRIV_H

#include "base/jsonw.h"
#include "model/blame_sum.h"
#include "model/summary.h"
#include "sink/json.h"

void json_ms(struct jsonw *w, const char *key, int64_t ns);	/* < 0: null */
void json_since(struct jsonw *w, const char *key, uint64_t ns, uint64_t t0_ns);	/* ns == 0: null */
void json_str(struct jsonw *w, const char *key, const char *s);	/* NULL or "": null */
void json_known_count(struct jsonw *w, const char *key, uint64_t n);
void json_maybe_count(struct jsonw *w, const char *key, uint64_t n, bool known);
void json_double(struct jsonw *w, const char *key, double v, bool known);
void json_ppm_as_pct(struct jsonw *w, const char *key, uint32_t ppm, bool known);
void json_dist(struct jsonw *w, const char *key, const struct dist *d);
void json_tiers(struct jsonw *w, uint32_t tiers);
const char *json_phase(uint8_t phase, bool guess);	/* "p", "d"; "p?" where it is inferred */
void json_pid(struct jsonw *w, const struct model_view *v, uint32_t engine);	/* "engine_pid" */

/* A document on one request, or on blame: its first keys, up to "capture"; and its end, which returns 0 or -errno. */
void json_begin(struct jsonw *w, const struct model_view *v, const char *trouble, FILE *out);
int json_end(struct jsonw *w, FILE *out);
/* Keys of a request: "id"; "t0_ms" and "t0_utc"; what it was; "state", "reason", "joined_late"; "join". */
void json_id(struct jsonw *w, const struct rec_request *r);
void json_began(struct jsonw *w, const struct model_view *v, uint64_t ns);
void json_identity(struct jsonw *w, const struct model_view *v, const struct rec_request *r);
void json_state(struct jsonw *w, const struct rec_request *r);
void json_join(struct jsonw *w, const struct rec_sequence *q);	/* NULL: it has none */

/* json_gpu.c: keys of an engine, a step, a request and its provenance; "kernels" and "devices". */
struct gpu_healths;
void json_gpu_engine(struct jsonw *w, const struct model_view *v, const struct gpu_healths *h, uint32_t engine);
void json_gpu_step(struct jsonw *w, const struct model_view *v, size_t step);
void json_gpu_request(struct jsonw *w, const struct model_view *v, uint32_t request);
void json_gpu_provenance(struct jsonw *w, const struct model_view *v, uint32_t request);
void json_gpu(struct jsonw *w, const struct model_view *v);

/* Return 0 or -ENOMEM. */
int json_engines(struct jsonw *w, const struct model_view *v);
int json_requests(struct jsonw *w, const struct model_view *v, struct blame *b,
		  const struct json_opts *o);
int json_health(struct jsonw *w, const struct model_view *v);
/* "blame" and "what_if" */
int json_blame(struct jsonw *w, const struct model_view *v, struct blame *b, const struct blame_sum *s);
void json_gap_parts(struct jsonw *w, const struct model_view *v, const struct gap *g);	/* an array */
/* "gaps", "gaps_side" and "ttft_parts" of a request (index) */
int json_gaps(struct jsonw *w, const struct model_view *v, struct blame *b, uint32_t request,
	      bool all);

#endif
