/* SPDX-License-Identifier: Apache-2.0 */
/* The script that a Python runs for us, and the socket by which it gets
 * the library and the ring. */
#include "source/pep768_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "source/proc.h"

#define SOCKET_NAME "socket"
#define SCRIPT_NAME "script"

/* Only modules that are compiled in or are libraries: others could leave byte code on a disk.
 * Whatever goes wrong is not told to anybody but us: the process has its own output. Of a socket
 * whose listener has gone, nothing is heard. */
static const char script[] =
	"def enter(folder):\n"
	" import posix, time, _socket as s\n"
	" began, fds, gate = time.monotonic_ns(), (), s.socket(s.AF_UNIX, s.SOCK_STREAM | s.SOCK_CLOEXEC)\n"
	" try:\n"
	"  gate.settimeout(.5)\n"
	"  gate.connect(folder + '/" SOCKET_NAME "')\n"
	"  start, more, *_ = gate.recvmsg(8, 64, s.MSG_CMSG_CLOEXEC)\n"
	"  if more:\n"
	"   fds = memoryview(more[0][2]).cast('i')\n"
	"   start = int.from_bytes(start, 'little')\n"
	"   try:\n"
	"    import _ctypes as c\n"
	"    start = start or c.dlsym(c.dlopen('/proc/self/fd/%d' % fds[1], 2), 'tokenlag_start')\n"
	"    result = c.call_function(start, (fds[0],))\n"
	"   except ImportError:\n"
	"    result = -38\n"	/* ENOSYS */
	"   except OSError:\n"
	"    result = -79\n"	/* ELIBACC */
	"   gate.send(b''.join(n.to_bytes(8, 'little', signed=True) for n in (result, time.monotonic_ns() - began)))\n"
	" except OSError:\n"
	"  pass\n"
	" finally:\n"
	"  gate.close()\n"
	"  for fd in fds:\n"
	"   posix.close(fd)\n"
	"  try:\n"
	"   posix.unlink(folder + '/" SOCKET_NAME "')\n"
	"   posix.unlink(folder + '/" SCRIPT_NAME "')\n"
	"   posix.rmdir(folder)\n"
	"  except OSError:\n"
	"   pass\n"
	"try:\n"
	" enter('%s')\n"
	"except BaseException:\n"
	" pass\n";

/* ---- the folder ---- */

static int open_shm(pid_t pid, char why[96])
{
	struct statfs fs;
	int fd = proc_open_in_root(pid, "/dev/shm", O_RDONLY | O_DIRECTORY);

	if (fd >= 0 && !fstatfs(fd, &fs) && fs.f_type == TMPFS_MAGIC)
		return fd;
	if (fd >= 0)
		close(fd);
	snprintf(why, 96, "has no tmpfs at /dev/shm, by which its Python could be given a script");
	return -ENOTSUP;
}

int pep768_hand__check(pid_t pid, char why[96])
{
	int fd = open_shm(pid, why);

	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

/* As which it opens files. */
static int read_owner(pid_t pid, uid_t *ret_uid, gid_t *ret_gid)
{
	char path[64], line[256];
	int n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "re");
	if (!f)
		return -ESRCH;
	while (fgets(line, sizeof(line), f)) {
		n += sscanf(line, "Uid: %*u %*u %*u %u", ret_uid) == 1;
		n += sscanf(line, "Gid: %*u %*u %*u %u", ret_gid) == 1;
	}
	fclose(f);
	return n == 2 ? 0 : -ESRCH;
}

static void remove_folder(int shm, int folder, const char *name)
{
	unlinkat(folder, SOCKET_NAME, 0);
	unlinkat(folder, SCRIPT_NAME, 0);
	unlinkat(shm, name, AT_REMOVEDIR);
}

/* What those left behind who were killed: their locks are gone. One that is not
 * sticky yet is being made. */
static void sweep(int shm)
{
	static const char begin[] = ".tokenlag-";
	struct dirent *d;
	struct stat st;
	int fd = openat(shm, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir && fd >= 0)
		close(fd);
	while (dir && (d = readdir(dir))) {
		if (strncmp(d->d_name, begin, sizeof(begin) - 1))
			continue;
		fd = openat(shm, d->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd >= 0 && !fstat(fd, &st) && st.st_mode & S_ISVTX &&
		    !flock(fd, LOCK_EX | LOCK_NB))
			remove_folder(shm, fd, d->d_name);
		if (fd >= 0)
			close(fd);
	}
	if (dir)
		closedir(dir);
}

static int write_script(struct pep768_hand *h, uid_t uid, gid_t gid)
{
	char text[sizeof(script) + sizeof(h->name) + 16], folder[sizeof(h->name) + 16],
		*at = strstr(script, "%s");
	const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	int fd = openat(h->folder, SCRIPT_NAME, flags, 0400), err = 0, len;

	if (fd < 0)
		return -errno;
	snprintf(folder, sizeof(folder), "/dev/shm/%s", h->name);
	len = snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - script), script, folder, at + 2);
	errno = 0;
	if (write(fd, text, len) != len || fchown(fd, uid, gid))
		err = errno ? -errno : -ENOSPC;
	close(fd);
	return err;
}

static int listen_there(struct pep768_hand *h, uid_t uid, gid_t gid)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };

	h->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	snprintf(at.sun_path, sizeof(at.sun_path), "/proc/self/fd/%d/" SOCKET_NAME, h->folder);
	if (h->listener < 0 || bind(h->listener, (const void *)&at, sizeof(at)) ||
	    listen(h->listener, 4) ||
	    fchownat(h->folder, SOCKET_NAME, uid, gid, AT_SYMLINK_NOFOLLOW))
		return -errno;
	return 0;
}

static int fill(struct pep768_hand *h)
{
	unsigned char bytes[16];
	uid_t uid;
	gid_t gid;
	int err = read_owner(h->pid, &uid, &gid), n;

	if (err)
		return err;
	if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
		return -EIO;
	n = snprintf(h->name, sizeof(h->name), ".tokenlag-");
	for (size_t i = 0; i < sizeof(bytes); i++)
		n += snprintf(h->name + n, sizeof(h->name) - n, "%02x", bytes[i]);
	snprintf(h->script, sizeof(h->script), "/dev/shm/%s/" SCRIPT_NAME, h->name);
	if (mkdirat(h->shm, h->name, 0700))
		return -errno;
	/* It is the target's only when all is in there: until then nobody else can
	 * have put a link into it. */
	h->folder = openat(h->shm, h->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (h->folder < 0)
		return -errno;
	if (flock(h->folder, LOCK_EX | LOCK_NB) || fchmod(h->folder, 01700))
		return -errno;
	err = write_script(h, uid, gid);
	err = err ? err : listen_there(h, uid, gid);
	return err ? err : fchown(h->folder, uid, gid) ? -errno : 0;
}

int pep768_hand__open(pid_t pid, struct pep768_hand *ret, char why[96])
{
	struct pep768_hand h = { .pid = pid, .folder = -1, .listener = -1 };
	int err;

	h.shm = open_shm(pid, why);
	if (h.shm < 0)
		return h.shm;
	sweep(h.shm);
	err = fill(&h);
	if (err) {
		snprintf(why, 96, "a script for its Python cannot be put into its /dev/shm (%s)%s",
			 strerror(-err),
			 err == -ENOSPC ? ": free some of it" : "");
		pep768_hand__close(&h);
		return err;
	}
	*ret = h;
	return 0;
}

void pep768_hand__close(struct pep768_hand *h)
{
	if (h->listener >= 0)
		close(h->listener);
	if (h->folder >= 0) {
		remove_folder(h->shm, h->folder, h->name);
		close(h->folder);
	} else if (*h->name) {
		unlinkat(h->shm, h->name, AT_REMOVEDIR);
	}
	close(h->shm);
	h->listener = h->folder = h->shm = -1;
}

/* ---- the script comes ---- */

static int wait_for(int fd, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, timeout_ms) > 0 ? 0 : -EAGAIN;
}

int pep768_hand__await(struct pep768_hand *h, int timeout_ms)
{
	struct ucred who = { 0 };
	socklen_t len = sizeof(who);
	int fd, err = wait_for(h->listener, timeout_ms);

	if (err)
		return err;
	fd = accept4(h->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return -EAGAIN;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) || who.pid != h->pid) {
		close(fd);
		return -EAGAIN;
	}
	remove_folder(h->shm, h->folder, h->name);
	return fd;
}

int pep768_hand__give(int connection, uint64_t start, int ring, int library)
{
	int fds[2] = { ring, library };
	size_t bytes = start ? sizeof(int) : sizeof(fds);
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(fds))];
	} more = { .room = { 0 } };
	struct iovec text = { &start, sizeof(start) };
	struct msghdr m = {
		.msg_iov = &text, .msg_iovlen = 1,
		.msg_control = &more, .msg_controllen = CMSG_SPACE(bytes),
	};

	more.header = (struct cmsghdr){
		.cmsg_len = CMSG_LEN(bytes), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
	};
	memcpy(CMSG_DATA(&more.header), fds, bytes);
	return sendmsg(connection, &m, MSG_NOSIGNAL) == sizeof(start) ? 0 : -EPIPE;
}

int pep768_hand__result(int connection, int timeout_ms, int *ret, uint64_t *ret_ns)
{
	int64_t got[2];
	int err = wait_for(connection, timeout_ms);

	if (err)
		return err;
	if (recv(connection, got, sizeof(got), 0) != sizeof(got) || got[0] > 0 || got[0] < -4095 ||
	    got[1] < 0)
		return -EPIPE;
	*ret = got[0];
	*ret_ns = got[1];
	return 0;
}
