/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a recording on disk. */
#include "source/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct src_file {
	int fd;
	struct rec_reader *reader;
};

static int64_t read_at(void *ctx, uint64_t offset, void *buf, size_t len)
{
	const struct src_file *f = ctx;
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(f->fd, (char *)buf + done, len - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (int64_t)done;
}

int src_file__open(const char *path, struct src_file **ret)
{
	struct src_file *f = calloc(1, sizeof(*f));
	struct rec_input in = { read_at, f };
	struct stat st;
	int err;

	if (!f)
		return -ENOMEM;
	/* a pipe without a writer must not hang us */
	f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (f->fd < 0 || fstat(f->fd, &st) < 0) {
		err = -errno;
		goto fail;
	}
	if (!S_ISREG(st.st_mode)) {
		err = -ENOMSG;
		goto fail;
	}
	err = rec_reader__new(&in, &f->reader);
	if (err)
		goto fail;
	*ret = f;
	return 0;
fail:
	src_file__close(f);
	return err;
}

void src_file__close(struct src_file *f)
{
	if (!f)
		return;
	rec_reader__free(f->reader);
	if (f->fd >= 0)
		close(f->fd);
	free(f);
}

struct rec_reader *src_file__reader(struct src_file *f)
{
	return f->reader;
}
