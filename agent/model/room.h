/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a step had room for one more that came before it: what its members say of that. Pure. */
#ifndef TL_MODEL_ROOM_H
#define TL_MODEL_ROOM_H

#include "model/model.h"

/* Does each of its members run on behind it? Then who is new in the next one took nobody's place. */
bool step_all_run_on(const struct model_view *v, uint32_t step);

/* Is one of its members a prompt that goes on in a later step? Then it had, as a rule, no token
 * left. */
bool step_cuts_a_prompt(const struct model_view *v, uint32_t step);

#endif
