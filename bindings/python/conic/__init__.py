"""Packets through the daemon of the coherent NIC in software, `conic nic`, over libconic.so.

    import conic

    with conic.attach("/run/conic/nic.sock") as client:
        client.send(frame)                      # bytes, or a scapy packet
        for frame in client.receive(timeout=1):  # bytes
            print(len(frame), "bytes for", client.mac)

A program that has other things to wait for uses `asyncio` and `await client.receive_async()`, or gives a queue to its own event
loop (`Queue.fileno`, `arm`, `disarm`). `conic.scapy` makes a queue a socket of scapy, for `sr1`, `sniff` and the like.

A client that attaches with `offloads=["requests"]` has the NIC complete checksums, cut TCP packets and put VLAN tags in, and is told
what the NIC knows of what it gets:

    client.send(frame, metadata=conic.Metadata(checksum=(34, 16), segment=1448))
    for frame in client.receive(timeout=1):
        print(frame.metadata.hash)

Frames are copied into and out of the memory that is shared with the daemon, so that no buffer can be misused: this is for tests and
tools, at some hundred thousand frames a second. libconic.so is found as other libraries are (LD_LIBRARY_PATH, ldconfig), or
where the environment's CONIC_LIBRARY says.

A client and its queues may be used by several threads: each queue lets one in at a time.
"""

from conic._client import Client, Queue, attach
from conic._library import Error
from conic._metadata import Frame, Metadata

__all__ = ["Client", "Error", "Frame", "Metadata", "Queue", "attach"]
