/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ports that the programs on sockets and those on TCP watch: one map, which the agent fills. */
#ifndef TL_PORTS_H
#define TL_PORTS_H

#include "maps.h"

/* Local TCP ports of targets, in host order; the value says nothing. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u16);
	__type(value, __u8);
} ports SEC(".maps");

#endif
