# SPDX-License-Identifier: Apache-2.0
"""A packet capture on the loopback device: when each segment really left."""
import ctypes
import socket
import struct
import threading
import time

SO_ATTACH_FILTER, SO_RCVBUFFORCE, SO_TIMESTAMPNS = 26, 33, 35


def to_monotonic():
	"""From the clock of packets to that of events: whoever loses its CPU between two looks is off by as much."""
	looks = [(time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(100)]
	a, real, b = min(looks, key=lambda look: look[2] - look[0])
	return (a + b) // 2 - real


def only_port(s, port):
	"""The kernel leaves out all others, of which a busy host has more than this script can read."""
	code = [(0x28, 0, 0, 12), (0x15, 0, 8, 0x800),			# IPv4
		(0x30, 0, 0, 23), (0x15, 0, 6, socket.IPPROTO_TCP),
		(0xb1, 0, 0, 14),					# the length of its header
		(0x48, 0, 0, 14), (0x15, 2, 0, port),			# from
		(0x48, 0, 0, 16), (0x15, 0, 1, port),			# to
		(0x06, 0, 0, 0xffff), (0x06, 0, 0, 0)]
	text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *c) for c in code))
	s.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HxxxxxxP", len(code), ctypes.addressof(text)))


class Packets:
	"""Every TCP segment that leaves on the loopback device from or to a port."""

	def __init__(self, port):
		self.port, self.seen = port, []
		self.s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
		self.s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
		self.s.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 32 << 20)
		only_port(self.s, port)
		self.s.bind(("lo", 0))
		self.to_mono = to_monotonic()
		self.stop = threading.Event()
		self.thread = threading.Thread(target=self.run)
		self.thread.start()

	def run(self):
		self.s.settimeout(0.1)
		while True:
			try:
				data, anc, _, addr = self.s.recvmsg(256, 256)
			except socket.timeout:
				if self.stop.is_set():	# and all that waited is read
					return
				continue
			if addr[2] == 4 and addr[1] == 0x0800:		# going out, IPv4
				self.take(data, anc)

	def take(self, data, anc):
		ip = data[14:]
		ihl, total = (ip[0] & 15) * 4, struct.unpack("!H", ip[2:4])[0]
		if ip[9] != socket.IPPROTO_TCP:
			return
		src, dst, seq, ack, off = struct.unpack("!HHIIB", ip[ihl:ihl + 13])
		if self.port not in (src, dst):
			return
		sec, nsec = struct.unpack("qq", anc[0][2])
		self.seen.append({"ns": sec * 1000000000 + nsec + self.to_mono, "from": src, "to": dst, "seq": seq,
				  "ack": ack, "bytes": total - ihl - (off >> 4) * 4})

	def close(self):
		self.stop.set()
		self.thread.join()
		self.s.close()

	def out(self, peer):
		"""Segments with data to that peer, with offsets in the stream."""
		segs = [p for p in self.seen if p["from"] == self.port and p["to"] == peer and p["bytes"] > 0]
		first = segs[0]["seq"]
		return [dict(p, end=(p["seq"] + p["bytes"] - first) & 0xffffffff) for p in segs], first

	def acks(self, peer, first):
		return [dict(p, end=(p["ack"] - first) & 0xffffffff) for p in self.seen
			if p["from"] == peer and p["to"] == self.port and p["ack"]]
