"""A queue as a socket of scapy, so that scapy's functions send and receive through the daemon.

    import conic
    from conic.scapy import Socket
    from scapy.all import ARP, Ether

    with conic.attach() as client, Socket(client.queues[0]) as socket:
        who = Ether(src=client.mac, dst="ff:ff:ff:ff:ff:ff") / ARP(psrc="10.9.0.1", pdst="10.9.0.2")
        answer = socket.sr1(who, timeout=1)
"""

import time

from scapy.data import MTU
from scapy.layers.l2 import Ether
from scapy.supersocket import SuperSocket

# Seconds after which scapy may look at the time, and whether it is to stop.
SLICE = 0.05


class Socket(SuperSocket):
    """Sends and receives Ethernet frames on one queue, which it neither owns nor closes."""

    desc = "a queue of a conic client"
    # `select` comes back soon: scapy needs no other socket to wake it.
    nonblocking_socket = True

    def __init__(self, queue):
        self.queue = queue
        self.closed = False

    def send(self, packet):
        """Sends a packet; returns its length, or 0 where there was no room for a second."""
        frame = bytes(packet)
        packet.sent_time = time.time()
        return len(frame) * self.queue.send(frame)

    def recv_raw(self, x=MTU):
        """The next frame as (class, bytes, time), or three times None."""
        frames = self.queue.receive(1)
        if not frames:
            return None, None, None
        return Ether, frames[0][:x], time.time()

    def fileno(self):
        """The queue's descriptor, which is readable only once the queue was armed."""
        return self.queue.fileno()

    def close(self):
        """Is used no more; the queue and its client go on."""
        self.closed = True

    @staticmethod
    def select(sockets, remain=None):
        """Those sockets that have a frame, waiting for one for `remain` seconds at the most, and not for long."""
        until = time.monotonic() + (SLICE if remain is None else min(remain, SLICE))
        while True:
            ready = [socket for socket in sockets if socket.queue.wait(0)]
            if ready or not sockets or time.monotonic() >= until:
                return ready
            # One is slept on, the others are looked at in between.
            sockets[0].queue.wait(SLICE / 10 if len(sockets) > 1 else until - time.monotonic())
