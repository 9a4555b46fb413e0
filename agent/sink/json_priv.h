/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files that write the report's JSON. */
#ifndef TL_SINK_JSON_PRIV_H
#define TL_SINK_JSON_PRIV_H

#include "base/jsonw.h"
#include "sink/json.h"

void json_ms(struct jsonw *w, const char *key, int64_t ns);	/* < 0: null */
void json_since(struct jsonw *w, const char *key, uint64_t ns, uint64_t t0_ns);	/* ns == 0: null */
void json_str(struct jsonw *w, const char *key, const char *s);	/* NULL or "": null */
void json_known_count(struct jsonw *w, const char *key, uint64_t n);
void json_pid(struct jsonw *w, const struct model_view *v, uint32_t engine);	/* "engine_pid" */

void json_requests(struct jsonw *w, const struct model_view *v, const struct json_opts *o);

#endif
