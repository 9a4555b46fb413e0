/* SPDX-License-Identifier: Apache-2.0 */
/* Seams inside the reader of /proc: facts from files, sockets and packages of one process. */
#ifndef TL_PROC_PRIV_H
#define TL_PROC_PRIV_H

#include "source/proc.h"

/* What engines' symbols a mapped file has; remembered by device and inode. */
struct file_facts {
	uint64_t inode;		/* 0: empty slot */
	uint32_t dev_major, dev_minor;
	uint32_t symbols;	/* bit i: recognise_symbols[i] */
	uint32_t llama_build;
	bool is_exe, symtab;	/* looked at as an executable; it has a .symtab */
};

struct listener {
	uint64_t netns, inode;
	uint16_t port;
};

struct proc_scan {
	struct file_facts *files;	/* hash table, n_files of max_files slots used */
	size_t n_files, max_files;
	struct listener *listeners;
	size_t n_listeners, max_listeners;
	uint64_t *netns;		/* those whose listeners are loaded */
	size_t n_netns, max_netns;
};

/* Each adds its share to *f. 0, -ESRCH, -EACCES or -ENOMEM. */
int proc_files__read(struct proc_scan *s, pid_t pid, struct proc_facts *f);
int proc_packages__read(pid_t pid, struct proc_facts *f);
int proc_fds__read(struct proc_scan *s, pid_t pid, struct proc_facts *f);

#endif
