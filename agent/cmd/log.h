/* SPDX-License-Identifier: Apache-2.0 */
/* The only place that writes messages: one line on stderr, "tokenlag: " in front, "\n" added. */
#ifndef TL_LOG_H
#define TL_LOG_H

#include <argp.h>

enum log_level { LOG_QUIET = 0, LOG_NORMAL = 1, LOG_VERBOSE = 2 };

/* error: why the command fails, always shown. warn: it goes on, end with ", ignoring" or what is
 * lost; hidden by -q. info: progress and detail, shown with -v. */
void log_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

void log_set_level(enum log_level level);
enum log_level log_get_level(void);

/* -q and -v for a command's own argp: name it as a child, `{ &log_argp, 0, "Messages:", -1 }`. */
extern const struct argp log_argp;

#endif
