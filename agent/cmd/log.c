/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the commands, and the -q and -v that choose among them. */
#include "cmd/log.h"

#include <stdarg.h>
#include <stdio.h>

static enum log_level level_ = LOG_NORMAL;

/* One write per line, so that lines of several processes do not mix. */
static void say(const char *fmt, va_list ap)
{
	char line[1024];

	vsnprintf(line, sizeof(line), fmt, ap);
	fprintf(stderr, "tokenlag: %s\n", line);
}

void log_error(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(fmt, ap);
	va_end(ap);
}

void log_warn(const char *fmt, ...)
{
	va_list ap;

	if (level_ < LOG_NORMAL)
		return;
	va_start(ap, fmt);
	say(fmt, ap);
	va_end(ap);
}

void log_info(const char *fmt, ...)
{
	va_list ap;

	if (level_ < LOG_VERBOSE)
		return;
	va_start(ap, fmt);
	say(fmt, ap);
	va_end(ap);
}

void log_set_level(enum log_level level)
{
	level_ = level;
}

enum log_level log_get_level(void)
{
	return level_;
}

static const struct argp_option log_options[] = {
	{ "quiet", 'q', NULL, 0, "Say errors only", 0 },
	{ "verbose", 'v', NULL, 0, "Say more of what is done", 0 },
	{ 0 },
};

static error_t log_parse(int key, char *arg, struct argp_state *state)
{
	(void)arg;
	(void)state;
	switch (key) {
	case 'q':
		log_set_level(LOG_QUIET);
		return 0;
	case 'v':
		log_set_level(LOG_VERBOSE);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

const struct argp log_argp = { log_options, log_parse, NULL, NULL, NULL, NULL, NULL };
