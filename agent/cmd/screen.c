/* SPDX-License-Identifier: Apache-2.0 */
/* Width, color and character set of stdout. */
#include "cmd/screen.h"

#include "base/str.h"
#include <langinfo.h>
#include <locale.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { DEFAULT_WIDTH = 100, MIN_WIDTH = 60, MAX_WIDTH = 250 };

int screen_width(void)
{
	struct winsize w;
	const char *env = getenv("COLUMNS");
	uint64_t n = 0;

	if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) && w.ws_col)
		n = w.ws_col;
	else if (!env || str_parse_u64(env, &n))
		n = DEFAULT_WIDTH;
	return n < MIN_WIDTH ? MIN_WIDTH : n > MAX_WIDTH ? MAX_WIDTH : (int)n;
}

bool screen_color(void)
{
	const char *no = getenv("NO_COLOR");

	return isatty(STDOUT_FILENO) && (!no || !*no);
}

bool screen_utf8(void)
{
	setlocale(LC_CTYPE, "");
	return !strcmp(nl_langinfo(CODESET), "UTF-8");
}
