/* SPDX-License-Identifier: Apache-2.0 */
/* Brings libtokenlag.so into a process of Python 3.14 by the interpreter's own means (PEP
 * 768): nobody is stopped. */
#ifndef TL_SOURCE_PEP768_H
#define TL_SOURCE_PEP768_H

#include "source/inject.h"

/* For a process that inject() refused. The main thread of its Python runs a script of ours as soon
 * as it runs Python code, which may not be soon: -EAGAIN after 2 s, and nothing stays. Returns and
 * fills *ret as inject() does, with n_stops 0; stopped_ns is how long the main thread was at the
 * script. -ENOENT: there is no Python that takes scripts. `why` is no sentence of its own: it goes
 * on behind the one of inject(). */
int pep768_enter(pid_t pid, const struct inject_opts *opts, struct inject_result *ret);

/* Would it be refused? Looks only; as above. */
int pep768_check(pid_t pid, const char *library, char why[96]);

#endif
