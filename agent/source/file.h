/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a recording on disk; what is in it comes from rec_reader. */
#ifndef TL_SOURCE_FILE_H
#define TL_SOURCE_FILE_H

#include "parse/recording.h"

struct src_file;

/* Returns 0 or -errno: rec_error_text(err) is what to tell the user. A directory, a pipe or a
 * terminal is no recording: -ENOMSG. */
int src_file__open(const char *path, struct src_file **ret);
void src_file__close(struct src_file *f);	/* NULL is fine */

/* Header, events, statistics. Lives as long as f. */
struct rec_reader *src_file__reader(struct src_file *f);

#endif
