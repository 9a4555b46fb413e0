/* SPDX-License-Identifier: Apache-2.0 */
/* What stdout can show. */
#ifndef TL_SCREEN_H
#define TL_SCREEN_H

#include <stdbool.h>

int screen_width(void);		/* columns: of the terminal, else $COLUMNS, else 100 */
bool screen_color(void);	/* a terminal, and NO_COLOR is not set */
bool screen_utf8(void);		/* by the locale's character set */

#endif
